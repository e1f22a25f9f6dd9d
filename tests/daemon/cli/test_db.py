from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from stores import opened

from pdmuxd.controlplane.database.sqlite import sqlite_url
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.process.lock import exclusive
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
    assert (
        pdmuxd("db", "backup", "copy.db").out
        == "backed up to copy.db, at settings version 1; no daemon runs\n"
    )
    assert pdmuxd("db", "backup", "copy.db", code=1).err.startswith("error: copy.db exists")
    assert pdmuxd("db", "backup", "other.db", "--json").json == {
        "backup": "other.db",
        "settings_version": 1,
        "daemon_settings_version": None,
    }


def test_everything_is_as_it_was_when_a_backup_is_restored(pdmuxd, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    secret = control_plane.keys.issue("chat").secret
    pdmuxd("db", "backup", "copy.db")
    control_plane.delete_tenant("chat")

    restored = pdmuxd("db", "restore", "copy.db", "--json").json

    assert restored["revision"] == head_revision()
    assert [one["name"] for one in pdmuxd("tenant", "list", "--json").json] == ["chat"]
    with opened(sqlite_url(pdmuxd.state / "pdmuxd.db")) as now:
        assert now.directory.authenticate(secret).name == "chat"
    with opened(sqlite_url(Path(restored["kept"]))) as before:
        assert before.list_tenants() == []


def test_nothing_is_touched_when_a_backup_cannot_be_restored(pdmuxd, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    before = (pdmuxd.state / "pdmuxd.db").stat().st_ino
    Path("bad.db").write_bytes(b"not a database at all, but long enough to be read as one" * 20)
    with closing(sqlite3.connect("empty.db")) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
    for path, said in (
        ("none.db", "no backup at none.db"),
        ("bad.db", "not a database"),
        ("empty.db", "no schema revision"),
    ):
        assert said in pdmuxd("db", "restore", path, code=1).err
    with exclusive(pdmuxd.state):
        assert "in use by another pdmuxd" in pdmuxd("db", "restore", "bad.db", code=2).err
    assert (pdmuxd.state / "pdmuxd.db").stat().st_ino == before
    assert [file.name for file in pdmuxd.state.glob("*restor*")] == []


def test_a_password_is_not_shown_when_the_url_has_one(pdmuxd) -> None:
    result = pdmuxd("--set", "database_url=nosuchdb://me:hunter2@host/db", "db", "check", code=2)
    assert "hunter2" not in result.out + result.err
