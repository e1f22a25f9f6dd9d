"""The table of who may use which route. A route that is not in it cannot be served."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from starlette.requests import Request

from pdmuxd.controlplane.api.auth import PAGES_PREFIX, caller_of, is_below
from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.engine.core.errors import KeyScopeError, ReadOnlyError

PREFIX = "/api/v1"


class Access(StrEnum):
    """The callers whose token or key suffices. An admin token always does."""

    ADMIN = "admin"
    READ = "read"
    """A reader token too: the route changes nothing."""
    ANYONE = "anyone"
    """Any token, and any key with the scope `read` or `admin`: the route tells of no tenant."""
    OWN_READ = "own-read"
    """A reader token, and a tenant's key with the scope `read` or `admin` for what is its own."""
    OWN_ADMIN = "own-admin"
    """A tenant's key with the scope `admin` for what is its own; of tokens only admin ones."""


RULES: Mapping[tuple[str, str], Access] = {
    ("GET", "/tenants"): Access.READ,
    ("POST", "/tenants"): Access.ADMIN,
    ("GET", "/tenants/{name}"): Access.OWN_READ,
    ("PUT", "/tenants/{name}"): Access.ADMIN,
    ("PATCH", "/tenants/{name}"): Access.ADMIN,
    ("DELETE", "/tenants/{name}"): Access.ADMIN,
    ("GET", "/tenants/{name}/keys"): Access.OWN_READ,
    ("POST", "/tenants/{name}/keys"): Access.OWN_ADMIN,
    ("GET", "/keys/{key_id}"): Access.OWN_READ,
    ("DELETE", "/keys/{key_id}"): Access.OWN_ADMIN,
    ("POST", "/keys/{key_id}/rotate"): Access.OWN_ADMIN,
    ("GET", "/tenants/{name}/limits"): Access.OWN_READ,
    ("PATCH", "/tenants/{name}/limits"): Access.ADMIN,
    ("GET", "/keys/{key_id}/limits"): Access.OWN_READ,
    ("PATCH", "/keys/{key_id}/limits"): Access.ADMIN,
    ("GET", "/tenants/{name}/slo"): Access.OWN_READ,
    ("PUT", "/tenants/{name}/slo"): Access.ADMIN,
    ("PATCH", "/tenants/{name}/slo"): Access.ADMIN,
    ("GET", "/tenants/{name}/slo/history"): Access.OWN_READ,
    ("POST", "/tenants/{name}/slo/preview"): Access.READ,
    ("GET", "/config"): Access.READ,
    ("PUT", "/config"): Access.ADMIN,
    ("GET", "/config/schema"): Access.ANYONE,
    ("GET", "/admin-tokens"): Access.READ,
    ("POST", "/admin-tokens"): Access.ADMIN,
    ("GET", "/admin-tokens/{name}"): Access.READ,
    ("DELETE", "/admin-tokens/{name}"): Access.ADMIN,
    ("GET", "/audit"): Access.READ,
    ("GET", "/engine"): Access.READ,
    ("GET", "/policies"): Access.ANYONE,
    ("GET", "/policy"): Access.READ,
    ("PUT", "/policy"): Access.ADMIN,
    ("GET", "/policy/history"): Access.READ,
    ("POST", "/policy/rollback"): Access.ADMIN,
    ("GET", "/version"): Access.ANYONE,
    ("GET", "/whoami"): Access.ANYONE,
    ("GET", "/profiles"): Access.READ,
    ("POST", "/profiles"): Access.ADMIN,
    ("GET", "/profiles/active"): Access.READ,
    ("POST", "/profiles/rollback"): Access.ADMIN,
    ("POST", "/profiles/deactivate"): Access.ADMIN,
    ("GET", "/profiles/{profile_id}"): Access.READ,
    ("GET", "/profiles/{profile_id}/document"): Access.READ,
    ("GET", "/profiles/{profile_id}/diff/{other_id}"): Access.READ,
    ("POST", "/profiles/{profile_id}/activate"): Access.ADMIN,
    ("PUT", "/profiles/{profile_id}/frozen"): Access.ADMIN,
    ("GET", "/profiles/{profile_id}/learned"): Access.READ,
    ("DELETE", "/profiles/{profile_id}/learned"): Access.ADMIN,
    ("DELETE", "/profiles/{profile_id}/learned/{cell}"): Access.ADMIN,
    ("GET", "/profiles/{profile_id}/changes"): Access.READ,
    ("GET", "/events"): Access.READ,
    ("GET", "/decisions"): Access.READ,
    ("GET", "/requests"): Access.READ,
    ("GET", "/requests/{request_id}"): Access.READ,
    ("GET", "/attainment"): Access.OWN_READ,
    ("GET", "/alarms"): Access.READ,
    ("GET", "/alarms/history"): Access.READ,
    ("GET", "/incidents"): Access.READ,
    ("GET", "/incidents/{incident_id}"): Access.READ,
    ("GET", "/history"): Access.OWN_READ,
    ("GET", "/history/decisions"): Access.READ,
    ("GET", "/effects"): Access.READ,
    ("GET", "/prices"): Access.READ,
    ("PUT", "/prices"): Access.ADMIN,
    ("GET", "/usage"): Access.OWN_READ,
    ("GET", "/ledger"): Access.OWN_READ,
    ("GET", "/partitions"): Access.READ,
    ("GET", "/guard"): Access.READ,
    ("GET", "/drift"): Access.READ,
    ("POST", "/what-if"): Access.READ,
    ("GET", "/what-if/tbt-costs"): Access.READ,
    ("POST", "/what-if/replays"): Access.ADMIN,
    ("GET", "/what-if/replays"): Access.READ,
    ("GET", "/what-if/replays/{job_id}"): Access.READ,
    ("DELETE", "/what-if/replays/{job_id}"): Access.ADMIN,
    ("GET", "/engine/log"): Access.READ,
    ("POST", "/engine/start"): Access.ADMIN,
    ("POST", "/engine/drain"): Access.ADMIN,
    ("POST", "/engine/resume"): Access.ADMIN,
    ("POST", "/engine/restart"): Access.ADMIN,
    ("GET", "/engine/quarantine"): Access.READ,
    ("POST", "/engine/quarantine/release"): Access.ADMIN,
    ("GET", "/daemon/duties"): Access.READ,
    ("POST", "/daemon/reload"): Access.ADMIN,
    ("POST", "/daemon/upgrade"): Access.ADMIN,
}
"""By method and path below PREFIX. What only reads asks for no more than READ."""

PAGES: Mapping[tuple[str, str], Access] = {
    ("GET", "/ui"): Access.ANYONE,
    ("GET", "/ui/overview"): Access.READ,
    ("GET", "/ui/overview/picture"): Access.READ,
    ("GET", "/ui/live"): Access.READ,
    ("GET", "/ui/tenants"): Access.READ,
    ("GET", "/ui/tenants.csv"): Access.READ,
    ("GET", "/ui/tenants/{name}"): Access.OWN_READ,
    ("GET", "/ui/tenants/{name}/targets"): Access.ADMIN,
    ("POST", "/ui/tenants/{name}/targets"): Access.ADMIN,
    ("GET", "/ui/requests"): Access.READ,
    ("GET", "/ui/requests/{request_id}"): Access.READ,
    ("GET", "/ui/decisions"): Access.READ,
    ("GET", "/ui/tenants/{name}/requests"): Access.OWN_READ,
    ("GET", "/ui/partitions"): Access.READ,
    ("GET", "/ui/gpu"): Access.READ,
    ("POST", "/ui/gpu/{action}"): Access.ADMIN,
    ("GET", "/ui/profiles"): Access.READ,
    ("POST", "/ui/profiles"): Access.ADMIN,
    ("GET", "/ui/profiles/{profile_id}"): Access.READ,
    ("GET", "/ui/policy"): Access.READ,
    ("POST", "/ui/policy"): Access.ADMIN,
    ("GET", "/ui/what-if"): Access.READ,
    ("GET", "/ui/replays"): Access.READ,
    ("POST", "/ui/replays"): Access.ADMIN,
    ("GET", "/ui/replays/{job_id}"): Access.READ,
    ("GET", "/ui/reports/{file}"): Access.READ,
    ("GET", "/ui/settings"): Access.READ,
    ("GET", "/ui/alarms"): Access.READ,
    ("GET", "/ui/incidents"): Access.READ,
    ("GET", "/ui/audit"): Access.READ,
    ("POST", "/ui/logout"): Access.ANYONE,
    ("GET", "/ui/{path}"): Access.ANYONE,
}
"""The same of pages, which a browser shows the cookie of a login for."""


def access_of(method: str, path: str) -> Access:
    """The rule of a route. Raises: LookupError for a route without one, which is a defect."""
    try:
        return (PAGES if is_below(PAGES_PREFIX, path) else RULES)[method, path.removeprefix(PREFIX)]
    except KeyError:
        raise LookupError(f"{method} {path} has no rule in controlplane/api/access.py") from None


def authorise(request: Request, access: Access) -> None:
    """Let the caller use a route of that rule. Raises: ReadOnlyError, KeyScopeError (both 403)."""
    caller = caller_of(request.scope)
    if caller.role == "admin":
        return
    if caller.role == "reader":
        if access in (Access.ADMIN, Access.OWN_ADMIN):
            raise ReadOnlyError(
                f"{caller.name} is a reader token, which may read and not change; "
                f"{request.method} needs an admin token"
            )
        return
    _authorise_key(caller, access, request)


def _authorise_key(caller: Caller, access: Access, request: Request) -> None:
    """A key reads what is its tenant's, and of that manages only its keys.

    A path names what is asked for by tenant (`name`), by query (`tenant`), or by the id of a key, whose
    owner only the store knows: those routes ask it for this tenant's key (see `own_tenant`).
    """
    needed = {Access.OWN_ADMIN: ("admin",)}.get(access, ("read", "admin"))
    if access in (Access.ADMIN, Access.READ):
        raise KeyScopeError(f"an API key may not {request.method} {request.url.path}; send an admin token")
    if not caller.scopes.intersection(needed):
        raise KeyScopeError(f"key {caller.name} may not do this; it needs the scope {' or '.join(needed)}")
    if access is Access.ANYONE or "key_id" in request.path_params:
        return
    wanted = request.path_params.get("name", request.query_params.get("tenant"))
    if wanted != caller.tenant:
        raise KeyScopeError(f"key {caller.name} is of tenant {caller.tenant} and may ask for that one only")


def own_tenant(request: Request) -> str | None:
    """The tenant that a caller with an API key is bound to; None for tokens."""
    return caller_of(request.scope).tenant
