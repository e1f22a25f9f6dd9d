"""A method for each operation of the REST interface. Made by `make client` from the OpenAPI document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pdmuxd.tui.client.api.calls import quoted

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models


class AsyncOperations(ABC):
    """Calls to `/api/v1`, by their operation ids."""

    @abstractmethod
    async def request(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401
        """Call a path below `/api/v1`; the answer as JSON, or as text."""

    @abstractmethod
    def _pages(self, path: str, query: Mapping[str, object], items: str | None) -> AsyncIterator[Any]:
        """Go through a list."""

    async def list_tenants(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        q: str | None = None,
        class_: Literal["interactive", "standard", "batch"] | None = None,
        enabled: bool | None = None,
        timeout_s: float | None = None,
    ) -> list[models.TenantOut]:
        """List tenants by name. `Link` leads to the next page."""
        found: list[models.TenantOut] = await self.request(
            "GET",
            "/tenants",
            query={"after": after, "limit": limit, "q": q, "class": class_, "enabled": enabled},
            timeout_s=timeout_s,
        )
        return found

    def iter_tenants(
        self,
        *,
        limit: int | None = None,
        q: str | None = None,
        class_: Literal["interactive", "standard", "batch"] | None = None,
        enabled: bool | None = None,
    ) -> AsyncIterator[models.TenantOut]:
        """The same to its end, page by page, an entry at a time; `limit` is of a page."""
        return self._pages("/tenants", {"limit": limit, "q": q, "class": class_, "enabled": enabled}, None)

    async def create_tenant(
        self,
        body: models.TenantIn,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.TenantOut:
        """Create a tenant. It has no API key yet: issue one."""
        found: models.TenantOut = await self.request(
            "POST", "/tenants", body=body, why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def get_tenant(self, name: str, *, timeout_s: float | None = None) -> models.TenantOut:
        """Show one tenant."""
        found: models.TenantOut = await self.request("GET", f"/tenants/{quoted(name)}", timeout_s=timeout_s)
        return found

    async def update_tenant(
        self,
        name: str,
        body: models.TenantPatch,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.TenantOut:
        """Change whether it is enabled, its limit and share, with whom it shares the cache."""
        found: models.TenantOut = await self.request(
            "PATCH", f"/tenants/{quoted(name)}", body=body, if_match=if_match, why=why, timeout_s=timeout_s
        )
        return found

    async def delete_tenant(
        self,
        name: str,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete a tenant with its keys and the history of its targets. Requests in flight finish."""
        await self.request(
            "DELETE", f"/tenants/{quoted(name)}", if_match=if_match, why=why, timeout_s=timeout_s
        )

    async def put_tenant(
        self,
        name: str,
        body: models.ConfigTenantIn,
        *,
        force: bool | None = None,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.TenantOut:
        """Make a tenant as the body says, with its targets and limits; what is left out gets its default.

        Creates it (201) if there is none of that name. One change, one settings version; put again, nothing
        changes. Its keys stay. With `If-Match` it must exist.
        """
        found: models.TenantOut = await self.request(
            "PUT",
            f"/tenants/{quoted(name)}",
            query={"force": force},
            body=body,
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )
        return found

    async def list_keys(
        self,
        name: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        revoked: bool | None = None,
        timeout_s: float | None = None,
    ) -> list[models.KeyOut]:
        """List a tenant's keys, oldest first, revoked ones too. `Link` leads to the next page."""
        found: list[models.KeyOut] = await self.request(
            "GET",
            f"/tenants/{quoted(name)}/keys",
            query={"after": after, "limit": limit, "revoked": revoked},
            timeout_s=timeout_s,
        )
        return found

    def iter_keys(
        self, name: str, *, limit: int | None = None, revoked: bool | None = None
    ) -> AsyncIterator[models.KeyOut]:
        """The same to its end, page by page, an entry at a time; `limit` is of a page."""
        return self._pages(f"/tenants/{quoted(name)}/keys", {"limit": limit, "revoked": revoked}, None)

    async def issue_key(
        self,
        name: str,
        body: models.KeyIn,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.IssuedKeyOut:
        """Issue a key. The secret is in this answer and is never shown again."""
        found: models.IssuedKeyOut = await self.request(
            "POST",
            f"/tenants/{quoted(name)}/keys",
            body=body,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def get_key(self, key_id: str, *, timeout_s: float | None = None) -> models.KeyOut:
        """Show a key."""
        found: models.KeyOut = await self.request("GET", f"/keys/{quoted(key_id)}", timeout_s=timeout_s)
        return found

    async def revoke_key(
        self,
        key_id: str,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.KeyOut:
        """Revoke a key for good, at once. Requests that are in flight finish."""
        found: models.KeyOut = await self.request(
            "DELETE", f"/keys/{quoted(key_id)}", if_match=if_match, why=why, timeout_s=timeout_s
        )
        return found

    async def rotate_key(
        self,
        key_id: str,
        body: models.RotateIn,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.IssuedKeyOut:
        """Issue a key in the place of this one, which goes on being good for the overlap."""
        found: models.IssuedKeyOut = await self.request(
            "POST",
            f"/keys/{quoted(key_id)}/rotate",
            body=body,
            if_match=if_match,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def list_admin_tokens(self, *, timeout_s: float | None = None) -> list[models.AdminTokenOut]:
        """List the admin tokens by name, revoked ones too. The token in the file is not among them."""
        found: list[models.AdminTokenOut] = await self.request("GET", "/admin-tokens", timeout_s=timeout_s)
        return found

    async def issue_admin_token(
        self,
        body: models.AdminTokenIn,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.IssuedAdminTokenOut:
        """Issue a token. The secret is in this answer and is never shown again."""
        found: models.IssuedAdminTokenOut = await self.request(
            "POST", "/admin-tokens", body=body, why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def get_admin_token(self, name: str, *, timeout_s: float | None = None) -> models.AdminTokenOut:
        """Show a token."""
        found: models.AdminTokenOut = await self.request(
            "GET", f"/admin-tokens/{quoted(name)}", timeout_s=timeout_s
        )
        return found

    async def revoke_admin_token(
        self,
        name: str,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.AdminTokenOut:
        """Revoke a token for good, at once. Its name is not given again."""
        found: models.AdminTokenOut = await self.request(
            "DELETE", f"/admin-tokens/{quoted(name)}", if_match=if_match, why=why, timeout_s=timeout_s
        )
        return found

    async def list_audit(
        self,
        *,
        before: int | None = None,
        tenant: str | None = None,
        who: str | None = None,
        action: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> models.AuditOut:
        """List who changed what, when and why, with how it was before and after."""
        found: models.AuditOut = await self.request(
            "GET",
            "/audit",
            query={
                "before": before,
                "tenant": tenant,
                "who": who,
                "action": action,
                "since": since,
                "until": until,
                "limit": limit,
            },
            timeout_s=timeout_s,
        )
        return found

    def iter_audit(
        self,
        *,
        tenant: str | None = None,
        who: str | None = None,
        action: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.AuditEntryOut]:
        """The same to its end, page by page, an entry at a time; `limit` is of a page."""
        return self._pages(
            "/audit",
            {"tenant": tenant, "who": who, "action": action, "since": since, "until": until, "limit": limit},
            "entries",
        )

    async def get_slo(self, name: str, *, timeout_s: float | None = None) -> models.SloOut:
        """Show the targets that hold, and whether the engine already works with them."""
        found: models.SloOut = await self.request("GET", f"/tenants/{quoted(name)}/slo", timeout_s=timeout_s)
        return found

    async def set_slo(
        self,
        name: str,
        body: models.SloIn,
        *,
        force: bool | None = None,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.SloSetOut:
        """Set all targets. They reach the engine within a second, without a restart.

        A stricter target that the policy in force is predicted to miss at the load of the last minutes is
        refused with 409 and the lowest that is feasible, unless it is forced.
        """
        found: models.SloSetOut = await self.request(
            "PUT",
            f"/tenants/{quoted(name)}/slo",
            query={"force": force},
            body=body,
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )
        return found

    async def change_slo(
        self,
        name: str,
        body: models.SloPatch,
        *,
        force: bool | None = None,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.SloSetOut:
        """Set the targets that are given; the others stay, and so do all if none would change."""
        found: models.SloSetOut = await self.request(
            "PATCH",
            f"/tenants/{quoted(name)}/slo",
            query={"force": force},
            body=body,
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )
        return found

    async def preview_slo(
        self,
        name: str,
        body: models.SloIn,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.OutlookOut:
        """Say what these targets would give to all tenants at the load of the last minutes. No change."""
        found: models.OutlookOut = await self.request(
            "POST",
            f"/tenants/{quoted(name)}/slo/preview",
            body=body,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def list_slo_history(
        self, name: str, *, limit: int | None = None, timeout_s: float | None = None
    ) -> list[models.SloOut]:
        """List the newest revisions, newest first; at most one of them is in force."""
        found: list[models.SloOut] = await self.request(
            "GET", f"/tenants/{quoted(name)}/slo/history", query={"limit": limit}, timeout_s=timeout_s
        )
        return found

    async def get_tenant_limits(self, name: str, *, timeout_s: float | None = None) -> models.LimitsOut:
        """Show the limits of a tenant, and what of them is used now."""
        found: models.LimitsOut = await self.request(
            "GET", f"/tenants/{quoted(name)}/limits", timeout_s=timeout_s
        )
        return found

    async def change_tenant_limits(
        self,
        name: str,
        body: models.LimitsPatch,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.LimitsOut:
        """Set or remove limits of all keys of a tenant together. In force at once."""
        found: models.LimitsOut = await self.request(
            "PATCH",
            f"/tenants/{quoted(name)}/limits",
            body=body,
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )
        return found

    async def get_key_limits(self, key_id: str, *, timeout_s: float | None = None) -> models.LimitsOut:
        """Show the limits that hold for a key: its own, and those of its tenant."""
        found: models.LimitsOut = await self.request(
            "GET", f"/keys/{quoted(key_id)}/limits", timeout_s=timeout_s
        )
        return found

    async def change_key_limits(
        self,
        key_id: str,
        body: models.LimitsPatch,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.LimitsOut:
        """Set or remove limits of one key, beside those of its tenant. In force at once."""
        found: models.LimitsOut = await self.request(
            "PATCH",
            f"/keys/{quoted(key_id)}/limits",
            body=body,
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )
        return found

    async def get_config(self, *, timeout_s: float | None = None) -> models.ConfigOut:
        """Show all that operators set, in the form that `PUT` takes. Keys and tokens are not in it."""
        found: models.ConfigOut = await self.request("GET", "/config", timeout_s=timeout_s)
        return found

    async def put_config(
        self,
        body: models.ConfigIn,
        *,
        prune: bool | None = None,
        dry_run: bool | None = None,
        force: bool | None = None,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ConfigAppliedOut:
        """Make tenants and policy as the document says, all of it or nothing. Sent twice, it changes nothing.

        A tenant that the document names becomes what it says: what it leaves out gets its default. Tenants
        that it does not name stay, unless pruned. One settings version, one entry in the audit.
        """
        found: models.ConfigAppliedOut = await self.request(
            "PUT",
            "/config",
            query={"prune": prune, "dry_run": dry_run, "force": force},
            body=body,
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )
        return found

    async def get_config_schema(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Show the form of the document as JSON Schema, for editors and checks."""
        found: dict[str, Any] = await self.request("GET", "/config/schema", timeout_s=timeout_s)
        return found

    async def get_engine(self, *, timeout_s: float | None = None) -> models.EngineOut:
        """Show the engine: its state, its settings, its partitions and its last heartbeat."""
        found: models.EngineOut = await self.request("GET", "/engine", timeout_s=timeout_s)
        return found

    async def list_policies(self, *, timeout_s: float | None = None) -> list[models.PolicyOut]:
        """List the policies that the setting `engine.policy` may name."""
        found: list[models.PolicyOut] = await self.request("GET", "/policies", timeout_s=timeout_s)
        return found

    async def get_version(self, *, timeout_s: float | None = None) -> models.VersionOut:
        """Show the version of pdmuxd and of the settings that it serves by; needs no database."""
        found: models.VersionOut = await self.request("GET", "/version", timeout_s=timeout_s)
        return found

    async def get_policy(self, *, timeout_s: float | None = None) -> models.PolicyStateOut:
        """Show what was set, what of it is in force, and how a shadow's decisions differ."""
        found: models.PolicyStateOut = await self.request("GET", "/policy", timeout_s=timeout_s)
        return found

    async def set_policy(
        self,
        body: models.PolicyIn,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.PolicyStateOut:
        """Set the policy, its splits and its shadow; in force at the next safe point, without a restart.

        Splits that a real engine has no streams and graphs for are in force when it is started next.
        """
        found: models.PolicyStateOut = await self.request(
            "PUT", "/policy", body=body, if_match=if_match, why=why, timeout_s=timeout_s
        )
        return found

    async def roll_back_policy(
        self,
        body: models.RollbackIn | None = None,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.PolicyStateOut:
        """Set again what an earlier version was; that is a new version."""
        found: models.PolicyStateOut = await self.request(
            "POST",
            "/policy/rollback",
            body=body,
            if_match=if_match,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def list_policy_history(
        self, *, limit: int | None = None, timeout_s: float | None = None
    ) -> list[models.PolicyRevisionOut]:
        """List the edits, newest first."""
        found: list[models.PolicyRevisionOut] = await self.request(
            "GET", "/policy/history", query={"limit": limit}, timeout_s=timeout_s
        )
        return found

    async def list_profiles(self, *, timeout_s: float | None = None) -> list[models.ProfileOut]:
        """List all profiles, newest first."""
        found: list[models.ProfileOut] = await self.request("GET", "/profiles", timeout_s=timeout_s)
        return found

    async def import_profile(
        self,
        body: dict[str, Any],
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ProfileOut:
        """Store an exported profile as a new version of its name. It is not in force yet."""
        found: models.ProfileOut = await self.request(
            "POST", "/profiles", body=body, why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def get_active_profile(self, *, timeout_s: float | None = None) -> models.ActiveOut:
        """Show what the policies predict with."""
        found: models.ActiveOut = await self.request("GET", "/profiles/active", timeout_s=timeout_s)
        return found

    async def roll_back_profile(
        self,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ActiveOut:
        """Put in force what was before the newest activation. It reaches the engine within a second."""
        found: models.ActiveOut = await self.request(
            "POST",
            "/profiles/rollback",
            if_match=if_match,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def deactivate_profile(
        self,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ActiveOut:
        """Let the engine predict with what it has of its own."""
        found: models.ActiveOut = await self.request(
            "POST",
            "/profiles/deactivate",
            if_match=if_match,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def get_profile(self, profile_id: int, *, timeout_s: float | None = None) -> models.ProfileOut:
        """Show one profile."""
        found: models.ProfileOut = await self.request(
            "GET", f"/profiles/{quoted(profile_id)}", timeout_s=timeout_s
        )
        return found

    async def export_profile(self, profile_id: int, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Export a profile with its samples, as it was measured."""
        found: dict[str, Any] = await self.request(
            "GET", f"/profiles/{quoted(profile_id)}/document", timeout_s=timeout_s
        )
        return found

    async def diff_profiles(
        self, profile_id: int, other_id: int, *, timeout_s: float | None = None
    ) -> list[models.ProfileDifferenceOut]:
        """List what differs from one profile to another."""
        found: list[models.ProfileDifferenceOut] = await self.request(
            "GET", f"/profiles/{quoted(profile_id)}/diff/{quoted(other_id)}", timeout_s=timeout_s
        )
        return found

    async def activate_profile(
        self,
        profile_id: int,
        body: models.ActivateIn,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ActiveOut:
        """Put a profile in force. It reaches the engine within a second, without a restart.

        `If-Match` is the ETag of the active profile.
        """
        found: models.ActiveOut = await self.request(
            "POST",
            f"/profiles/{quoted(profile_id)}/activate",
            body=body,
            if_match=if_match,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def freeze_profile(
        self,
        profile_id: int,
        body: models.FrozenIn,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ProfileOut:
        """Learn nothing any more while the profile is in force, or learn again."""
        found: models.ProfileOut = await self.request(
            "PUT",
            f"/profiles/{quoted(profile_id)}/frozen",
            body=body,
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )
        return found

    async def get_profile_learned(
        self, profile_id: int, *, timeout_s: float | None = None
    ) -> models.ProfileLearnedOut:
        """Show what serving has taught beyond the profile."""
        found: models.ProfileLearnedOut = await self.request(
            "GET", f"/profiles/{quoted(profile_id)}/learned", timeout_s=timeout_s
        )
        return found

    async def reset_profile_learned(
        self,
        profile_id: int,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Go back to the profile as it was measured."""
        await self.request(
            "DELETE",
            f"/profiles/{quoted(profile_id)}/learned",
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )

    async def reset_profile_cell(
        self,
        profile_id: int,
        cell: str,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Go back to the measured bound of one guard cell."""
        await self.request(
            "DELETE",
            f"/profiles/{quoted(profile_id)}/learned/{quoted(cell)}",
            if_match=if_match,
            why=why,
            timeout_s=timeout_s,
        )

    async def list_profile_changes(
        self, profile_id: int, *, limit: int | None = None, timeout_s: float | None = None
    ) -> list[models.ChangeOut]:
        """List what was learned and when, newest first, with the evidence."""
        found: list[models.ChangeOut] = await self.request(
            "GET", f"/profiles/{quoted(profile_id)}/changes", query={"limit": limit}, timeout_s=timeout_s
        )
        return found

    async def list_decisions(
        self,
        *,
        reason: Literal[
            "nothing_to_do",
            "wait_for_prefill",
            "prefill_alone",
            "decode_alone",
            "fixed_split",
            "decode_bs_rule",
            "token_budget",
            "best_fit",
            "fused_fits",
            "highest_throughput",
            "prefill_first",
            "hold_for_batch",
            "predictions_wrong",
            "tbt_infeasible",
            "switch_when_drained",
            "preempt_when_drained",
            "preempted_for_shorter",
            "resumed",
            "too_long_for_memory",
            "images_whole",
            "prefill_finished",
        ]
        | None = None,
        mode: Literal["idle", "split", "fused", "decode"] | None = None,
        tenant: str | None = None,
        sitting_out: bool | None = None,
        since: str | None = None,
        after_seq: int | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> models.DecisionsOut:
        """List the newest decisions, with their reasons and the numbers behind them."""
        found: models.DecisionsOut = await self.request(
            "GET",
            "/decisions",
            query={
                "reason": reason,
                "mode": mode,
                "tenant": tenant,
                "sitting_out": sitting_out,
                "since": since,
                "after_seq": after_seq,
                "limit": limit,
            },
            timeout_s=timeout_s,
        )
        return found

    async def list_requests(
        self,
        *,
        tenant: str | None = None,
        missed: bool | None = None,
        outcome: Literal["finished", "aborted", "invalid", "limited", "refused", "expired", "lost", "failed"]
        | None = None,
        target: Literal["ttft", "tbt", "availability", "e2e"] | None = None,
        in_flight: bool | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> models.RequestsOut:
        """List the newest requests, with the targets that they missed and why."""
        found: models.RequestsOut = await self.request(
            "GET",
            "/requests",
            query={
                "tenant": tenant,
                "missed": missed,
                "outcome": outcome,
                "target": target,
                "in_flight": in_flight,
                "limit": limit,
            },
            timeout_s=timeout_s,
        )
        return found

    async def get_request(self, request_id: str, *, timeout_s: float | None = None) -> models.RequestOut:
        """Show the life of one request: its waiting, prefill and decode, and what was decided meanwhile."""
        found: models.RequestOut = await self.request(
            "GET", f"/requests/{quoted(request_id)}", timeout_s=timeout_s
        )
        return found

    async def get_attainment(
        self,
        *,
        tenant: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        active: bool | None = None,
        q: str | None = None,
        class_: Literal["interactive", "standard", "batch"] | None = None,
        state: Literal["met", "missed", "no_traffic"] | None = None,
        timeout_s: float | None = None,
    ) -> models.AttainmentOut:
        """Show per tenant which share of requests and gaps was in time, and how fast the budget is used."""
        found: models.AttainmentOut = await self.request(
            "GET",
            "/attainment",
            query={
                "tenant": tenant,
                "after": after,
                "limit": limit,
                "active": active,
                "q": q,
                "class": class_,
                "state": state,
            },
            timeout_s=timeout_s,
        )
        return found

    def iter_attainment(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        active: bool | None = None,
        q: str | None = None,
        class_: Literal["interactive", "standard", "batch"] | None = None,
        state: Literal["met", "missed", "no_traffic"] | None = None,
    ) -> AsyncIterator[models.TenantAttainmentOut]:
        """The same to its end, page by page, an entry at a time; `limit` is of a page."""
        return self._pages(
            "/attainment",
            {"tenant": tenant, "limit": limit, "active": active, "q": q, "class": class_, "state": state},
            "tenants",
        )

    async def list_alarms(self, *, timeout_s: float | None = None) -> models.AlarmsOut:
        """Show the alarms that are raised, and the latest changes."""
        found: models.AlarmsOut = await self.request("GET", "/alarms", timeout_s=timeout_s)
        return found

    async def get_history(
        self,
        *,
        tenant: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        step_s: int | None = None,
        timeout_s: float | None = None,
    ) -> models.HistoryOut:
        """Show what was served: requests, attainment, tokens, SM time, waits, and what happened meanwhile."""
        found: models.HistoryOut = await self.request(
            "GET",
            "/history",
            query={"tenant": tenant, "from": from_, "to": to, "step_s": step_s},
            timeout_s=timeout_s,
        )
        return found

    async def get_decision_history(
        self,
        *,
        from_: str | None = None,
        to: str | None = None,
        step_s: int | None = None,
        timeout_s: float | None = None,
    ) -> models.DecisionSummariesOut:
        """Show how often each kind of decision was taken, in minutes, hours or days (60, 3600 or 86400)."""
        found: models.DecisionSummariesOut = await self.request(
            "GET",
            "/history/decisions",
            query={"from": from_, "to": to, "step_s": step_s},
            timeout_s=timeout_s,
        )
        return found

    async def list_past_alarms(
        self,
        *,
        tenant: str | None = None,
        kind: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        before: int | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> models.PastAlarmsOut:
        """List alarms with their beginning and end, those that are raised now included."""
        found: models.PastAlarmsOut = await self.request(
            "GET",
            "/alarms/history",
            query={"tenant": tenant, "kind": kind, "from": from_, "to": to, "before": before, "limit": limit},
            timeout_s=timeout_s,
        )
        return found

    def iter_past_alarms(
        self,
        *,
        tenant: str | None = None,
        kind: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.PastAlarmOut]:
        """The same to its end, page by page, an entry at a time; `limit` is of a page."""
        return self._pages(
            "/alarms/history",
            {"tenant": tenant, "kind": kind, "from": from_, "to": to, "limit": limit},
            "alarms",
        )

    async def list_incidents(
        self,
        *,
        state: Literal["open", "over"] | None = None,
        tenant: str | None = None,
        cause: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> models.IncidentsOut:
        """List times in which a tenant did not get what it is promised, as all surfaces tell them."""
        found: models.IncidentsOut = await self.request(
            "GET",
            "/incidents",
            query={
                "state": state,
                "tenant": tenant,
                "cause": cause,
                "from": from_,
                "to": to,
                "before": before,
                "limit": limit,
            },
            timeout_s=timeout_s,
        )
        return found

    def iter_incidents(
        self,
        *,
        state: Literal["open", "over"] | None = None,
        tenant: str | None = None,
        cause: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.IncidentEvent]:
        """The same to its end, page by page, an entry at a time; `limit` is of a page."""
        return self._pages(
            "/incidents",
            {"state": state, "tenant": tenant, "cause": cause, "from": from_, "to": to, "limit": limit},
            "incidents",
        )

    async def get_incident(self, incident_id: str, *, timeout_s: float | None = None) -> models.IncidentEvent:
        """Show one incident, as it is now or as it ended."""
        found: models.IncidentEvent = await self.request(
            "GET", f"/incidents/{quoted(incident_id)}", timeout_s=timeout_s
        )
        return found

    async def list_effects(
        self, *, tenant: str | None = None, limit: int | None = None, timeout_s: float | None = None
    ) -> models.EffectsOut:
        """Show what the latest changes of targets, policy and profile did: the minute before, and since."""
        found: models.EffectsOut = await self.request(
            "GET", "/effects", query={"tenant": tenant, "limit": limit}, timeout_s=timeout_s
        )
        return found

    async def get_prices(self, *, timeout_s: float | None = None) -> models.PricesOut:
        """Show what tokens cost."""
        found: models.PricesOut = await self.request("GET", "/prices", timeout_s=timeout_s)
        return found

    async def set_prices(
        self,
        body: models.PricesIn,
        *,
        if_match: int | str | None = None,
        why: str | None = None,
        timeout_s: float | None = None,
    ) -> models.PricesOut:
        """Set the whole price list. Usage is told by the list that holds when it is asked for."""
        found: models.PricesOut = await self.request(
            "PUT", "/prices", body=body, if_match=if_match, why=why, timeout_s=timeout_s
        )
        return found

    async def get_usage(
        self,
        *,
        from_: str | None = None,
        to: str | None = None,
        tenant: str | None = None,
        timeout_s: float | None = None,
    ) -> models.UsageOut:
        """Show what each tenant used: whole minutes of the last two days, whole hours before."""
        found: models.UsageOut = await self.request(
            "GET", "/usage", query={"from": from_, "to": to, "tenant": tenant}, timeout_s=timeout_s
        )
        return found

    async def get_usage_csv(
        self,
        *,
        from_: str | None = None,
        to: str | None = None,
        tenant: str | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """The same as CSV."""
        found: str = await self.request(
            "GET",
            "/usage",
            query={"from": from_, "to": to, "tenant": tenant, "format": "csv"},
            timeout_s=timeout_s,
        )
        return found

    async def get_ledger(
        self,
        *,
        from_: str | None = None,
        to: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> models.LedgerOut:
        """Show each request that ended, as it was stored: without any text."""
        found: models.LedgerOut = await self.request(
            "GET",
            "/ledger",
            query={"from": from_, "to": to, "tenant": tenant, "key": key, "after": after, "limit": limit},
            timeout_s=timeout_s,
        )
        return found

    async def get_ledger_csv(
        self,
        *,
        from_: str | None = None,
        to: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """The same as CSV."""
        found: str = await self.request(
            "GET",
            "/ledger",
            query={
                "from": from_,
                "to": to,
                "tenant": tenant,
                "key": key,
                "after": after,
                "limit": limit,
                "format": "csv",
            },
            timeout_s=timeout_s,
        )
        return found

    def iter_ledger(
        self,
        *,
        from_: str | None = None,
        to: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.LedgerEntryOut]:
        """The same to its end, page by page, an entry at a time; `limit` is of a page."""
        return self._pages(
            "/ledger", {"from": from_, "to": to, "tenant": tenant, "key": key, "limit": limit}, "entries"
        )

    async def get_partitions(self, *, timeout_s: float | None = None) -> models.PartitionsOut:
        """Show how long each partition group was used, and for how many tokens."""
        found: models.PartitionsOut = await self.request("GET", "/partitions", timeout_s=timeout_s)
        return found

    async def get_guard(self, *, timeout_s: float | None = None) -> models.GuardOut:
        """Show the contention guard: per cell what decisions use, and the slowdowns that were observed."""
        found: models.GuardOut = await self.request("GET", "/guard", timeout_s=timeout_s)
        return found

    async def get_drift(self, *, timeout_s: float | None = None) -> models.DriftOut:
        """Show how far what is measured is from what was predicted."""
        found: models.DriftOut = await self.request("GET", "/drift", timeout_s=timeout_s)
        return found

    async def ask_what_if(
        self,
        body: models.WhatIfIn,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.WhatIfOut:
        """Ask the policy in force what it would do for a TBT target, and what that costs. Changes nothing."""
        found: models.WhatIfOut = await self.request(
            "POST", "/what-if", body=body, why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def get_tbt_costs(self, *, timeout_s: float | None = None) -> list[models.TbtCostOut]:
        """Show whose TBT target was the strictest in the last minutes, and what that costs in prefill time.
        Empty without traffic of two tenants, or while there is no engine to predict for.
        """
        found: list[models.TbtCostOut] = await self.request("GET", "/what-if/tbt-costs", timeout_s=timeout_s)
        return found

    async def list_replays(self, *, timeout_s: float | None = None) -> list[models.ReplayOut]:
        """List the latest 20, newest first."""
        found: list[models.ReplayOut] = await self.request("GET", "/what-if/replays", timeout_s=timeout_s)
        return found

    async def begin_replay(
        self,
        body: models.ReplayIn,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ReplayOut:
        """Replay recent traffic on the emulator, as is in force and with other settings. Applies nothing."""
        found: models.ReplayOut = await self.request(
            "POST",
            "/what-if/replays",
            body=body,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def get_replay(self, job_id: str, *, timeout_s: float | None = None) -> models.ReplayOut:
        """Show how far a replay is, and its outcomes side by side."""
        found: models.ReplayOut = await self.request(
            "GET", f"/what-if/replays/{quoted(job_id)}", timeout_s=timeout_s
        )
        return found

    async def cancel_replay(
        self, job_id: str, *, why: str | None = None, timeout_s: float | None = None
    ) -> models.ReplayOut:
        """End a replay that has not ended."""
        found: models.ReplayOut = await self.request(
            "DELETE", f"/what-if/replays/{quoted(job_id)}", why=why, timeout_s=timeout_s
        )
        return found

    async def start_engine(
        self, *, why: str | None = None, idempotency_key: str | None = None, timeout_s: float | None = None
    ) -> models.ActionOut:
        """Start an engine that is down at once, without waiting for the end of its back-off."""
        found: models.ActionOut = await self.request(
            "POST", "/engine/start", why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def drain_engine(
        self, *, why: str | None = None, idempotency_key: str | None = None, timeout_s: float | None = None
    ) -> models.ActionOut:
        """Refuse new requests and let those in flight finish. The engine stays, until it is resumed."""
        found: models.ActionOut = await self.request(
            "POST", "/engine/drain", why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def resume_engine(
        self, *, why: str | None = None, idempotency_key: str | None = None, timeout_s: float | None = None
    ) -> models.ActionOut:
        """Take new requests again after a drain."""
        found: models.ActionOut = await self.request(
            "POST", "/engine/resume", why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def restart_engine(
        self,
        body: models.RestartIn | None = None,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ActionOut:
        """End the engine and start another. Requests in flight may finish first, within drain_timeout_s."""
        found: models.ActionOut = await self.request(
            "POST",
            "/engine/restart",
            body=body,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def list_quarantine(self, *, timeout_s: float | None = None) -> list[models.HeldOut]:
        """List the requests and tenants that are refused since they were in flight when engines ended."""
        found: list[models.HeldOut] = await self.request("GET", "/engine/quarantine", timeout_s=timeout_s)
        return found

    async def release_quarantine(
        self,
        body: models.ReleaseIn,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.ReleasedOut:
        """Serve them again: those of one tenant, or all."""
        found: models.ReleasedOut = await self.request(
            "POST",
            "/engine/quarantine/release",
            body=body,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def list_duties(self, *, timeout_s: float | None = None) -> list[models.DutyOut]:
        """List what the daemon does by itself, and how it went the last time."""
        found: list[models.DutyOut] = await self.request("GET", "/daemon/duties", timeout_s=timeout_s)
        return found

    async def reload_settings(
        self, *, why: str | None = None, idempotency_key: str | None = None, timeout_s: float | None = None
    ) -> models.ReloadOut:
        """Read the settings again; says by name which are in force now, and what the others take."""
        found: models.ReloadOut = await self.request(
            "POST", "/daemon/reload", why=why, idempotency_key=idempotency_key, timeout_s=timeout_s
        )
        return found

    async def upgrade_daemon(
        self,
        body: models.UpgradeIn | None = None,
        *,
        why: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> models.UpgradeOut:
        """Start the installed version of this daemon and give it the place: sockets, state directory, engine.

        Answers when the new one serves. Requests in flight finish in the process that has them.
        """
        found: models.UpgradeOut = await self.request(
            "POST",
            "/daemon/upgrade",
            body=body,
            why=why,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
        return found

    async def get_engine_log(
        self, *, lines: int | None = None, timeout_s: float | None = None
    ) -> models.LogOut:
        """Show the last lines that the engine printed, of at most half a MiB."""
        found: models.LogOut = await self.request(
            "GET", "/engine/log", query={"lines": lines}, timeout_s=timeout_s
        )
        return found

    async def get_whoami(self, *, timeout_s: float | None = None) -> models.WhoamiOut:
        """Show what the token of this call is good for."""
        found: models.WhoamiOut = await self.request("GET", "/whoami", timeout_s=timeout_s)
        return found
