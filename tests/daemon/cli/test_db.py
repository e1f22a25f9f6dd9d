from __future__ import annotations

import pytest

from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.migrations import head_revision


def test_the_database_is_made_when_upgraded_and_again(pdmuxd) -> None:
    url = f"sqlite:///{pdmuxd.state}/pdmuxd.db"
    for _ in range(2):
        assert pdmuxd("db", "upgrade").out == f"{url} is at schema {head_revision()}\n"
    assert pdmuxd("db", "check", "--json").json == {"database": url, "revision": head_revision()}


@pytest.mark.parametrize(
    "words", [["db", "check"], ["db", "backup", "x.db"], ["tenant", "list"], ["slo", "show"]]
)
def test_the_command_to_run_is_named_when_there_is_no_database(pdmuxd, words: list[str]) -> None:
    err = pdmuxd(*words, code=2).err
    assert err.splitlines()[-1] == (
        f"error: there is no database at {pdmuxd.state}/pdmuxd.db; create it with: pdmuxd db upgrade"
    )


def test_a_copy_is_made_when_backed_up(pdmuxd, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    assert pdmuxd("db", "backup", "copy.db").out == "backed up to copy.db\n"
    assert pdmuxd("db", "backup", "copy.db", code=1).err.startswith("error: copy.db exists")
    assert pdmuxd("db", "backup", "other.db", "--json").json == {"backup": "other.db"}

    (pdmuxd.state / "pdmuxd.db").write_bytes(__import__("pathlib").Path("copy.db").read_bytes())


def test_a_password_is_not_shown_when_the_url_has_one(pdmuxd) -> None:
    result = pdmuxd("--set", "database_url=nosuchdb://me:hunter2@host/db", "db", "check", code=2)
    assert "hunter2" not in result.out + result.err
