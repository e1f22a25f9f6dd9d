from __future__ import annotations

import pytest

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.limit_values import Limit


def test_limits_change_when_they_are_set(pdmuxd, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    key = control_plane.keys.issue("chat")
    assert pdmuxd("limit", "show", "chat").out == "there are no limits but max_in_flight, 256\n"
    out = pdmuxd("limit", "set", "chat", "requests_per_min=600:wait", "tokens_per_day=5000").out
    assert [line.split() for line in out.splitlines() if "tenant" in line] == [
        ["requests_per_min", "tenant", "600", "wait"],
        ["tokens_per_day", "tenant", "5000", "refuse"],
    ]
    pdmuxd("limit", "set", "chat", "concurrency=2", "--key", key.key_id)
    shown = pdmuxd("limit", "show", "chat", "--key", key.key_id, "--json").json
    assert next((one["name"], one["of"]) for one in shown["limits"]) == ("concurrency", "key")
    pdmuxd("limit", "set", "chat", "requests_per_min=none")
    assert control_plane.get_tenant("chat").limits == (Limit(name="tokens_per_day", value=5000),)
    assert "tokens_per_day 5000 (refuse)" in " ".join(pdmuxd("tenant", "show", "chat").out.split())


@pytest.mark.parametrize(
    "text", ["requests", "requests_per_min", "requests_per_min=", "requests_per_min=5:drop", "a=1"]
)
def test_a_limit_that_cannot_be_read_is_refused(pdmuxd, control_plane: ControlPlane, text: str) -> None:
    control_plane.create_tenant("chat")
    err = " ".join(pdmuxd("limit", "set", "chat", text, code=2).err.split())
    assert "is no limit; write" in err


def test_a_key_of_another_tenant_is_refused(pdmuxd, control_plane: ControlPlane) -> None:
    for name in ("chat", "other"):
        control_plane.create_tenant(name)
    key = control_plane.keys.issue("other")
    err = pdmuxd("limit", "set", "chat", "concurrency=1", "--key", key.key_id, code=2).err
    assert "is of tenant other, not chat" in " ".join(err.split())
    assert control_plane.directory.authenticate(key.secret).key.limits == ()
