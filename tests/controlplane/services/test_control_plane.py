from __future__ import annotations

import pytest
from stores import START, FakeClock, slo

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    StaleVersionError,
    TenantDisabledError,
    UnknownKeyError,
)
from pdmuxd.engine.core.slo import DEFAULT_SLO


class TestTenants:
    def test_a_tenant_has_default_targets_and_no_key_when_created(self, control_plane: ControlPlane) -> None:
        tenant = control_plane.create_tenant("chat")

        assert tenant == control_plane.get_tenant("chat") == control_plane.list_tenants()[0]
        assert (tenant.enabled, tenant.slo, tenant.slo_version) == (True, DEFAULT_SLO, 1)
        assert tenant.revision.settings_version == control_plane.snapshot().version == 1
        assert tenant.created_at > START
        assert control_plane.keys.list("chat") == []

    def test_tenants_are_in_order_of_name_when_listed(self, control_plane: ControlPlane) -> None:
        for name in ("b", "a-2", "a", "0"):
            control_plane.create_tenant(name, slo(), max_in_flight=7)
        assert [tenant.name for tenant in control_plane.list_tenants()] == ["0", "a", "a-2", "b"]

    @pytest.mark.parametrize("name", ["", "A", "-a", "a_b", "a b", "a\n", "é", "a" * 64, "a/b", "\udc80"])
    def test_a_name_is_refused_when_it_is_outside_what_is_allowed(
        self, control_plane: ControlPlane, name: str
    ) -> None:
        with pytest.raises(InvalidValueError, match=r"name is .*; allowed are 1 to 63 characters") as caught:
            control_plane.create_tenant(name)
        assert caught.value.field == "name"
        with pytest.raises(NotFoundError):
            control_plane.get_tenant(name)

    @pytest.mark.parametrize("name", ["a", "0", "a-", "a" * 63])
    def test_a_name_is_accepted_when_it_is_at_the_edge_of_what_is_allowed(
        self, control_plane: ControlPlane, name: str
    ) -> None:
        assert control_plane.create_tenant(name).name == name

    def test_a_second_tenant_is_a_conflict_when_it_has_the_same_name(
        self, control_plane: ControlPlane
    ) -> None:
        control_plane.create_tenant("chat", slo(0.02))
        with pytest.raises(ConflictError, match="already a tenant 'chat'"):
            control_plane.create_tenant("chat", slo(0.03))
        assert control_plane.get_tenant("chat").slo == slo(0.02)

    @pytest.mark.parametrize("limit", [0, -1, 65537])
    def test_a_limit_is_refused_when_it_is_outside_what_is_allowed(
        self, control_plane: ControlPlane, limit: int
    ) -> None:
        with pytest.raises(InvalidValueError, match="allowed are 1 to 65536"):
            control_plane.create_tenant("chat", max_in_flight=limit)
        control_plane.create_tenant("chat")
        with pytest.raises(InvalidValueError, match="allowed are 1 to 65536"):
            control_plane.update_tenant("chat", enabled=False, max_in_flight=limit)
        assert control_plane.get_tenant("chat").enabled

    def test_only_what_is_given_changes_when_a_tenant_is_updated(self, control_plane: ControlPlane) -> None:
        before = control_plane.create_tenant("chat", slo(), max_in_flight=5)
        after = control_plane.update_tenant("chat", max_in_flight=9)
        assert (after.max_in_flight, after.enabled, after.revision) == (9, True, before.revision)
        assert control_plane.get_tenant("chat") == after

    def test_the_version_stays_when_an_update_changes_nothing(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat", max_in_flight=5)
        control_plane.update_tenant("chat", enabled=True, max_in_flight=5)
        control_plane.update_tenant("chat")
        assert control_plane.snapshot().version == 1

    def test_keys_and_history_are_gone_when_a_tenant_is_deleted_and_made_again(
        self, control_plane: ControlPlane
    ) -> None:
        control_plane.create_tenant("chat")
        secret = control_plane.keys.issue("chat").secret
        control_plane.set_slo("chat", slo())

        control_plane.delete_tenant("chat")
        assert control_plane.keys.list() == []
        control_plane.create_tenant("chat")

        assert [one.version for one in control_plane.list_slo_history("chat")] == [1]
        with pytest.raises(UnknownKeyError):
            control_plane.snapshot().authenticate(secret)

    def test_every_call_says_so_when_there_is_no_such_tenant(self, control_plane: ControlPlane) -> None:
        for use in (
            control_plane.get_tenant,
            control_plane.delete_tenant,
            control_plane.keys.issue,
            control_plane.keys.list,
            control_plane.get_slo,
            control_plane.list_slo_history,
            lambda name: control_plane.set_slo(name, DEFAULT_SLO),
            lambda name: control_plane.update_tenant(name, enabled=False),
        ):
            with pytest.raises(NotFoundError, match="no tenant 'nobody'"):
                use("nobody")
        assert control_plane.snapshot().version == 0


class TestKeys:
    def test_a_key_opens_its_tenant_when_issued(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("a")
        control_plane.create_tenant("b")
        key = control_plane.keys.issue("b", "laptop")

        assert key.secret.startswith("pdm_")
        assert len(key.secret) == len("pdm_") + 43
        assert control_plane.snapshot().authenticate(key.secret).name == "b"

    def test_a_key_is_listed_without_its_secret_when_issued(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        keys = [control_plane.keys.issue("chat", label) for label in ("one", "two")]

        listed = control_plane.keys.list("chat")

        assert [key.label for key in listed] == ["one", "two"]
        assert [key.last4 for key in listed] == [key.secret[-4:] for key in keys]
        assert not any(hasattr(key, "secret") for key in listed)

    def test_the_first_instant_is_kept_when_a_key_is_revoked_twice(
        self, control_plane: ControlPlane, clock: FakeClock
    ) -> None:
        control_plane.create_tenant("chat")
        key = control_plane.keys.issue("chat")
        first = control_plane.keys.revoke(key.key_id)
        version = control_plane.snapshot().version

        assert first.revoked_at == clock.now
        assert control_plane.keys.revoke(key.key_id) == first == control_plane.keys.list()[0]
        assert control_plane.snapshot().version == version

    def test_a_key_is_refused_when_revoked_but_its_neighbour_is_not(
        self, control_plane: ControlPlane
    ) -> None:
        control_plane.create_tenant("chat")
        gone, kept = control_plane.keys.issue("chat"), control_plane.keys.issue("chat")
        control_plane.keys.revoke(gone.key_id)

        with pytest.raises(UnknownKeyError, match="unknown or was revoked"):
            control_plane.snapshot().authenticate(gone.secret)
        assert control_plane.snapshot().authenticate(kept.secret).name == "chat"

    def test_a_key_is_refused_while_its_tenant_is_disabled(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        secret = control_plane.keys.issue("chat").secret

        control_plane.update_tenant("chat", enabled=False)
        with pytest.raises(TenantDisabledError, match="tenant chat is disabled"):
            control_plane.snapshot().authenticate(secret)

        control_plane.update_tenant("chat", enabled=True)
        assert control_plane.snapshot().authenticate(secret).name == "chat"

    @pytest.mark.parametrize("secret", ["", "pdm_", "x", "\udc80", "pdm_" + "A" * 43, "é" * 1000])
    def test_a_key_is_refused_when_it_was_never_issued(
        self, control_plane: ControlPlane, secret: str
    ) -> None:
        control_plane.create_tenant("chat")
        control_plane.keys.issue("chat")
        with pytest.raises(UnknownKeyError):
            control_plane.snapshot().authenticate(secret)

    @pytest.mark.parametrize("label", ["x" * 101, "a\nb", "\x1b[31m", "\udc80", "\0"])
    def test_a_label_is_refused_when_it_could_not_be_shown(
        self, control_plane: ControlPlane, label: str
    ) -> None:
        control_plane.create_tenant("chat")
        with pytest.raises(InvalidValueError, match="allowed are at most 100 printable characters"):
            control_plane.keys.issue("chat", label)
        assert control_plane.keys.list("chat") == []

    @pytest.mark.parametrize("key_id", ["", "key_0", "é", "\udc80", "\0"])
    def test_revoking_says_so_when_there_is_no_such_key(
        self, control_plane: ControlPlane, key_id: str
    ) -> None:
        with pytest.raises(NotFoundError, match="no key"):
            control_plane.keys.revoke(key_id)


class TestSlos:
    def test_an_edit_is_the_next_version_when_set(
        self, control_plane: ControlPlane, clock: FakeClock
    ) -> None:
        control_plane.create_tenant("chat")
        control_plane.create_tenant("other")

        revision = control_plane.set_slo("chat", slo(), expected_version=1)

        assert revision == control_plane.get_slo("chat")
        assert (revision.version, revision.settings_version, revision.slo) == (2, 3, slo())
        assert revision.created_at == clock.now
        assert control_plane.get_slo("other").version == 1
        assert control_plane.get_tenant("chat").revision == revision

    def test_an_edit_is_refused_when_it_expects_another_version(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        control_plane.set_slo("chat", slo(0.02))
        for stale in (0, 1, 3, 10**30):
            with pytest.raises(StaleVersionError, match=f"at version 2, not {stale}"):
                control_plane.set_slo("chat", slo(0.03), expected_version=stale)
        assert control_plane.get_slo("chat").slo == slo(0.02)
        assert control_plane.snapshot().version == 2

    def test_all_edits_are_kept_newest_first_when_listed(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat", slo(0.01))
        for tbt_s in (0.02, 0.03, 0.04):
            control_plane.set_slo("chat", slo(tbt_s))

        history = control_plane.list_slo_history("chat")

        assert [one.version for one in history] == [4, 3, 2, 1]
        assert [one.slo.tbt_s for one in history] == [0.04, 0.03, 0.02, 0.01]
        assert [one.version for one in control_plane.list_slo_history("chat", 2)] == [4, 3]
        instants = [one.created_at for one in history]
        assert instants == sorted(instants, reverse=True)
        assert all(instant.tzinfo is not None for instant in instants)


class TestSnapshot:
    def test_it_stays_as_it_was_when_things_change_later(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        key = control_plane.keys.issue("chat")
        before = control_plane.snapshot()

        control_plane.keys.revoke(key.key_id)
        control_plane.delete_tenant("chat")

        assert before.authenticate(key.secret).name == "chat"
        with pytest.raises(TypeError):
            before.tenants["chat"] = before.tenants["chat"]  # type: ignore[index]

    def test_the_engine_gets_every_tenant_when_settings_are_made_of_it(
        self, control_plane: ControlPlane
    ) -> None:
        control_plane.create_tenant("b", slo(0.02))
        control_plane.create_tenant("a", slo(0.03))
        control_plane.set_slo("a", slo(0.035))
        control_plane.update_tenant("b", enabled=False)

        settings = control_plane.snapshot().engine_settings("static:96,36")

        assert (settings.version, settings.policy) == (4, "static:96,36")
        assert [(one.tenant, one.tbt_s, one.slo_version) for one in settings.tenants] == [
            ("a", 0.035, 2),
            ("b", 0.02, 1),
        ]
        first = settings.tenants[0]
        targets = (first.ttft_fixed_s, first.ttft_per_1k_new_tokens_s, first.attainment_ratio)
        assert targets == (0.5, 0.8, 0.95)

    def test_class_and_share_reach_the_engine_when_they_are_set(self, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("a")
        control_plane.update_tenant(
            "a", priority_class="batch", weight=0.5, max_wait_ms=700, late_action="refuse"
        )

        (told,) = control_plane.directory.engine_settings("auto").tenants

        assert (told.priority_class, told.weight, told.max_wait_ms) == ("batch", 0.5, 700)
        assert told.late_action == "refuse"
