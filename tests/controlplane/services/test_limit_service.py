from __future__ import annotations

from datetime import date

import pytest

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError, StaleVersionError

PER_MINUTE = Limit(name="requests_per_min", value=60, action="wait")
PER_DAY = Limit(name="tokens_per_day", value=10**9)


def test_limits_reach_the_directory_when_they_are_set(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    control_plane.create_tenant("other")
    after = control_plane.limits.change_tenant(
        "chat", {"tokens_per_day": PER_DAY, "requests_per_min": PER_MINUTE}
    )
    assert after.limits == (PER_MINUTE, PER_DAY) == control_plane.directory.tenants["chat"].limits
    assert after == control_plane.get_tenant("chat") == control_plane.list_tenants(limit=1)[0]
    assert control_plane.snapshot() == control_plane.directory
    assert control_plane.directory.tenants["other"].limits == ()
    assert after.version == control_plane.directory.version

    assert control_plane.limits.change_tenant("chat", {"requests_per_min": None}).limits == (PER_DAY,)
    version = control_plane.directory.version
    control_plane.limits.change_tenant("chat", {"requests_per_min": None, "tokens_per_day": PER_DAY})
    assert control_plane.directory.version == version
    entry = control_plane.audit(limit=1)[0]
    assert (entry.action, entry.before, entry.after) == (
        "limits.set",
        {
            "requests_per_min": {"value": 60, "action": "wait"},
            "tokens_per_day": {"value": 10**9, "action": "refuse"},
        },
        {"tokens_per_day": {"value": 10**9, "action": "refuse"}},
    )


def test_a_key_keeps_its_limits_when_it_is_rotated(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    key = control_plane.keys.issue("chat")
    limit = Limit(name="max_wait_ms", value=500)
    assert control_plane.limits.change_key(key.key_id, {"max_wait_ms": limit}) == (limit,)
    assert control_plane.directory.authenticate(key.secret).key.limits == (limit,)
    new = control_plane.keys.rotate(key.key_id)
    for secret in (key.secret, new.secret):
        assert control_plane.directory.find_key(secret, now_s=0.0).key.limits == (limit,)
    assert control_plane.snapshot() == control_plane.directory


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit(name="concurrency", value=0), "concurrency is 0; allowed are 1 to 65536"),
        (Limit(name="tokens", value=1), "'tokens' is no limit; allowed are concurrency, "),  # type: ignore[arg-type]
        (Limit(name="max_wait_ms", value=5), "max_wait_ms of a tenant is a field of the tenant itself"),
        (Limit(name="concurrency", value=1, action="drop"), "allowed are refuse and wait"),  # type: ignore[arg-type]
    ],
)
def test_nothing_changes_when_a_limit_is_wrong(control_plane: ControlPlane, limit: Limit, said: str) -> None:
    before = control_plane.create_tenant("chat")
    with pytest.raises(InvalidValueError, match=said):
        control_plane.limits.change_tenant("chat", {"requests_per_min": PER_MINUTE, limit.name: limit})
    assert control_plane.get_tenant("chat") == before


def test_nothing_changes_when_the_version_is_another(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    key = control_plane.keys.issue("chat")
    with pytest.raises(StaleVersionError):
        control_plane.limits.change_tenant("chat", {"tokens_per_day": PER_DAY}, expected_version=99)
    with pytest.raises(StaleVersionError):
        control_plane.limits.change_key(key.key_id, {"tokens_per_day": PER_DAY}, expected_version=99)
    with pytest.raises(NotFoundError):
        control_plane.limits.change_key("key_0000000000000000", {"tokens_per_day": PER_DAY})
    assert control_plane.directory.version == 2


def test_use_is_added_up_when_it_is_stored_again(control_plane: ControlPlane) -> None:
    for name in ("chat", "gone"):
        control_plane.create_tenant(name)
    today, before = date(2026, 1, 31), date(2026, 1, 30)
    some = Tokens(input_tokens=5, cached_tokens=3, output_tokens=2)
    control_plane.limits.add_use({UseOf("chat", WHOLE_TENANT, today): some, UseOf("gone", "", today): some})
    control_plane.limits.add_use(
        {UseOf("chat", WHOLE_TENANT, today): some, UseOf("chat", "key_1", before): some}
    )
    control_plane.delete_tenant("gone")
    control_plane.limits.add_use({UseOf("gone", "", today): some})
    version = control_plane.directory.version
    assert control_plane.limits.use_since(today) == {UseOf("chat", WHOLE_TENANT, today): some.plus(some)}
    assert len(control_plane.limits.use_since(before)) == 2
    assert control_plane.snapshot().version == version


def test_use_of_long_ago_is_forgotten(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    old, young = date(2025, 11, 1), date(2025, 12, 15)
    control_plane.limits.add_use({UseOf("chat", "", day): Tokens(output_tokens=1) for day in (old, young)})
    assert control_plane.limits.forget_use() == 1
    assert list(control_plane.limits.use_since(old)) == [UseOf("chat", "", young)]
