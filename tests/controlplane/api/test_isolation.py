"""A tenant's key reads and changes nothing of another's: asked of every route that there is."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from stores import SLO_BODY, AdminCalls

from pdmuxd.controlplane.api.access import PAGES, PREFIX, RULES, Access
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.pages import PageRoute

MINE, THEIRS = "alpha", "the-other-one"
ALL_SCOPES = ["serve", "read", "admin"]


def served(call: AdminCalls) -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, item in call.app.openapi()["paths"].items()
        for method in item
        if path.startswith(PREFIX)
    }


def test_every_route_has_a_rule_and_every_rule_a_route_when_served(call: AdminCalls) -> None:
    assert served(call) == {(method, PREFIX + path) for method, path in RULES}


def pages(call: AdminCalls) -> set[tuple[str, str]]:
    routes = [route for route in call.app.routes if isinstance(route, PageRoute)]
    return {(method, route.path_format) for route in routes for method in route.methods or ()}


def test_every_page_has_a_rule_and_every_rule_a_page_when_served(call: AdminCalls) -> None:
    assert pages(call) == set(PAGES)


@pytest.mark.parametrize("scopes", [ALL_SCOPES, ["read"]], ids=",".join)
async def test_no_page_tells_of_another_tenant_when_a_key_asks_everywhere(
    call: AdminCalls, control_plane: ControlPlane, scopes: list[str]
) -> None:
    world = World(control_plane, scopes)
    before = control_plane.snapshot()
    for method, template in sorted(pages(call)):
        path = world.path(template, tenant=THEIRS)
        for query in ("", f"?tenant={THEIRS}", f"?q={THEIRS}"):
            answer = await call(method, path + query, token=world.mine.secret)
            if PAGES[method, template] is not Access.ANYONE:
                assert answer.status_code in (403, 404, 422), (method, path, answer.text)
            told = answer.text.replace(path, "")
            assert "their label" not in told
            assert world.theirs.last4 not in told
            assert answer.status_code >= 400 or THEIRS not in told
    assert control_plane.snapshot() == before


def test_a_route_cannot_be_made_when_it_has_no_rule() -> None:
    router = admin_router(tags=["new"])
    with pytest.raises(LookupError, match=r"GET /new/\{name\} has no rule in controlplane/api/access.py"):
        router.add_api_route("/new/{name}", lambda name: name)


class World:
    """Two tenants with keys; what the other one has must never be seen or changed."""

    def __init__(self, control_plane: ControlPlane, scopes: list[str]) -> None:
        self.control_plane = control_plane
        for name in (MINE, THEIRS):
            control_plane.create_tenant(name)
        self.mine = control_plane.keys.issue(MINE, scopes=scopes)
        self.theirs = control_plane.keys.issue(THEIRS, "their label", scopes=ALL_SCOPES)
        control_plane.admin_tokens.issue("deploy")

    def path(self, template: str, *, tenant: str) -> str:
        key = self.mine if tenant == MINE else self.theirs
        values = {"name": tenant, "key_id": key.key_id, "request_id": "0" * 32, "cell": "1-2-3-4-5"}
        return re.sub(r"{(\w+)}", lambda found: values.get(found[1], "1"), template)


def body_for(method: str, path: str) -> Any:
    if method == "PUT" and path.endswith("/slo"):
        return SLO_BODY
    return {} if method in ("POST", "PUT", "PATCH") else None


@pytest.mark.parametrize("scopes", [ALL_SCOPES, ["serve"], ["read"], ["admin"]], ids=",".join)
async def test_nothing_of_another_tenant_is_read_or_changed_when_a_key_asks_everywhere(
    call: AdminCalls, control_plane: ControlPlane, scopes: list[str]
) -> None:
    world = World(control_plane, scopes)
    before = control_plane.snapshot()
    assert len(served(call)) > 40
    for method, template in sorted(served(call)):
        # By path, and where there is a query for it, by that.
        for query in ("", f"?tenant={THEIRS}"):
            path = world.path(template, tenant=THEIRS) + query
            answer = await call(method, path, token=world.mine.secret, json=body_for(method, template))
            if RULES[method, template.removeprefix(PREFIX)] is Access.ANYONE:
                assert answer.status_code in (200, 403, 422), (method, path)
            else:
                assert answer.status_code in (403, 404, 422), (method, path, answer.text)
            told = answer.text.replace(path, "")
            assert "their label" not in told
            assert world.theirs.last4 not in told
            assert '"tenant":"the-other-one"' not in told
    assert control_plane.snapshot() == before


async def test_a_tenant_manages_its_own_keys_when_its_key_has_the_scope(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    world = World(control_plane, ["read", "admin"])
    secret = world.mine.secret
    for path in (f"/tenants/{MINE}", f"/tenants/{MINE}/slo", f"/tenants/{MINE}/keys", "/whoami"):
        assert (await call("GET", PREFIX + path, token=secret)).status_code == 200, path
    # An application without a daemon knows of no tenant's requests.
    assert (await call("GET", f"{PREFIX}/attainment?tenant={MINE}", token=secret)).status_code in (200, 404)
    new = await call("POST", f"{PREFIX}/tenants/{MINE}/keys", token=secret, json={"scopes": ["serve"]})
    assert new.status_code == 201
    key_id = new.json()["key_id"]
    assert (await call("POST", f"{PREFIX}/keys/{key_id}/rotate", token=secret, json={})).status_code == 201
    assert (await call("DELETE", f"{PREFIX}/keys/{key_id}", token=secret)).status_code == 200
    assert [entry.who for entry in control_plane.audit(limit=4)] == [world.mine.key_id] * 4
    # Its targets cost the others: those only an operator sets.
    refused = await call("PUT", f"{PREFIX}/tenants/{MINE}/slo", token=secret, json=SLO_BODY)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:pdmuxd:problem:forbidden")


async def test_a_key_opens_nothing_when_its_tenant_is_disabled_or_the_path_is_no_tenants(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    world = World(control_plane, ALL_SCOPES)
    for path in ("/docs", "/nowhere"):
        assert (await call("GET", path, token=world.mine.secret)).status_code == 403
    control_plane.update_tenant(MINE, enabled=False)
    assert (await call("GET", f"{PREFIX}/whoami", token=world.mine.secret)).status_code == 401


async def test_a_key_learns_nothing_of_the_others_when_it_asks_how_its_tenant_does(
    control_plane: ControlPlane,
) -> None:
    world = World(control_plane, ["read"])
    known = Telemetry(clock=time.time)
    known.on_directory(control_plane.directory)
    call = AdminCalls(control_plane, telemetry=known)
    body = (await call("GET", f"{PREFIX}/attainment?tenant={MINE}", token=world.mine.secret)).json()
    assert ([one["tenant"] for one in body["tenants"]], body["totals"]) == ([MINE], None)
    assert (await call("GET", f"{PREFIX}/attainment", token=world.mine.secret)).status_code == 403
