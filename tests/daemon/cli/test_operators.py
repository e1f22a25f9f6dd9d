"""`pdmuxd admin-token` and `pdmuxd audit`."""

from __future__ import annotations

import pytest

from pdmuxd.controlplane.services.control_plane import ControlPlane


@pytest.fixture(params=["through the daemon", "on the database"], autouse=True)
def way(request: pytest.FixtureRequest, control_plane: ControlPlane) -> str:
    if request.param == "through the daemon":
        request.getfixturevalue("daemon")
    return request.param


def test_a_token_is_issued_listed_and_revoked_when_asked(pdmuxd, control_plane: ControlPlane) -> None:
    issued = pdmuxd("admin-token", "issue", "deploy", "--role", "reader")
    secret = issued.out.splitlines()[-1]
    assert secret.startswith("pdma_")
    control_plane.refresh()
    assert control_plane.directory.find_admin_token(secret) is not None
    assert secret not in pdmuxd("admin-token", "list").out
    assert pdmuxd("admin-token", "revoke", "deploy", "--json").json["revoked_at"] is not None
    control_plane.refresh()
    assert control_plane.directory.find_admin_token(secret) is None
    assert "not given twice" in pdmuxd("admin-token", "issue", "deploy", code=2).err
    assert "role" in pdmuxd("admin-token", "issue", "x", "--role", "king", code=2).err


def test_the_audit_says_who_and_why_when_something_was_changed(pdmuxd, way: str) -> None:
    assert pdmuxd("audit").out == "nothing was changed\n"
    pdmuxd("--why", "ticket 4711 für Zoë", "tenant", "create", "chat")
    pdmuxd("tenant", "limit", "chat", "9")
    limit, create = pdmuxd("audit", "--tenant", "chat", "--json").json["entries"]
    assert (create["action"], create["why"]) == ("tenant.create", "ticket 4711 für Zoë")
    assert create["who_kind"] == ("file-token" if way == "through the daemon" else "command-line")
    assert (limit["before"]["max_in_flight"], limit["after"]["max_in_flight"]) == (256, 9)
    assert "256 -> 9" in " ".join(pdmuxd("audit").out.split())
