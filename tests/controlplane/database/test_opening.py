from __future__ import annotations

import os
import sqlite3
import stat
import struct
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from stores import new_database, opened, slo

from pdmuxd.controlplane.database import opening as database
from pdmuxd.controlplane.database import sqlite
from pdmuxd.controlplane.database.sqlite import sqlite_url
from pdmuxd.controlplane.services import consistency
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import ConflictError, StoreError
from pdmuxd.migrations import head_revision


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pdmuxd.db"


def test_opening_names_the_command_when_there_is_no_database(path: Path) -> None:
    with pytest.raises(StoreError, match=r"no database at .*pdmuxd\.db; .*pdmuxd db upgrade"):
        database.open_database(sqlite_url(path))
    assert not path.exists()


def test_opening_names_the_command_when_the_database_is_empty(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreError, match=rf"^the database {path} is empty; .*pdmuxd db upgrade"):
        database.open_database(sqlite_url(path))


def test_opening_names_the_command_when_the_schema_is_older(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = head_revision()
    monkeypatch.setattr(database, "head_revision", lambda: "0099")
    with pytest.raises(
        StoreError, match=rf"of schema {present}, this pdmuxd needs 0099; run: pdmuxd db upgrade"
    ):
        database.open_database(url)


@pytest.mark.parametrize("use", [database.open_database, database.upgrade, consistency.check])
def test_a_schema_is_refused_when_it_is_newer_than_this_version(url: str, path: Path, use) -> None:
    execute(path, "UPDATE alembic_version SET version_num = 'feedbeef'")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"of schema feedbeef, this pdmuxd knows up to {head_revision()}"):
        use(url)
    assert path.read_bytes() == before


@pytest.mark.parametrize("use", [database.open_database, database.upgrade, consistency.check])
def test_an_error_of_ours_is_raised_when_the_file_is_no_database(path: Path, use) -> None:
    path.write_bytes(b"not a database at all, but long enough to be read as one" * 20)
    with pytest.raises(StoreError, match=rf"^the database {path} .*not a database"):
        use(sqlite_url(path))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "not a URL"),
        ("nosuchdb://user:hunter2@host/db", "nosuchdb"),
        ("sqlite://", "must name a file"),
        ("sqlite:///:memory:", "must name a file"),
        ("sqlite:///file:x?mode=memory&uri=true", "must name a file"),
    ],
)
def test_a_url_is_refused_when_no_database_can_be_behind_it(url: str, said: str) -> None:
    for use in (database.open_database, database.upgrade):
        with pytest.raises(StoreError, match=said) as caught:
            use(url)
        assert "hunter2" not in str(caught.value)


def test_the_way_to_a_file_is_kept_when_its_name_has_characters_of_urls(tmp_path: Path) -> None:
    path = tmp_path / "a b%20c?d#é" / "x.db"
    assert database.upgrade(sqlite_url(path)) == consistency.check(sqlite_url(path)) == head_revision()
    assert path.is_file()


def test_only_the_owner_can_read_when_the_database_is_made(path: Path) -> None:
    mask = os.umask(0)
    try:
        database.upgrade(sqlite_url(path))
        with opened(sqlite_url(path)) as control_plane:
            control_plane.create_tenant("chat")
            files = sorted(path.parent.iterdir())
            assert [file.name for file in files] == ["pdmuxd.db", "pdmuxd.db-shm", "pdmuxd.db-wal"]
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(mask)


def test_the_database_is_made_private_when_others_could_read_it(url: str, path: Path) -> None:
    path.chmod(0o644)
    database.open_database(url).dispose()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_error_of_ours_is_raised_when_the_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot create the database"):
        database.upgrade(sqlite_url(tmp_path / "file" / "x.db"))


def test_connections_have_their_pragmas_when_opened(url: str) -> None:
    engine = database.open_database(url)
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar_one() == sqlite.BUSY_TIMEOUT_S * 1000
    engine.dispose()


def test_a_change_fails_whole_when_another_program_holds_the_database(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    with opened(url) as control_plane:
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=rf"{path} .*locked"):
                control_plane.create_tenant("chat")
            assert control_plane.snapshot().version == 0
            other.rollback()
        assert control_plane.create_tenant("chat").revision.settings_version == 1


def test_nothing_of_an_upgrade_stays_when_it_fails_half_way(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(config, _revision) -> None:
        config.attributes["connection"].execute(text("CREATE TABLE half (id INTEGER)"))
        config.attributes["connection"].execute(text("SELECT * FROM nothing"))

    monkeypatch.setattr(database.command, "upgrade", fail)
    with pytest.raises(StoreError, match="nothing"):
        database.upgrade(sqlite_url(path))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_check_finds_damage_when_a_row_refers_to_nothing(url: str, path: Path) -> None:
    execute(path, "INSERT INTO slo_revisions VALUES (7, 1, 1, 1, 1, 0.9, 1, '2026-01-01', NULL)")
    with pytest.raises(StoreError, match="a row of slo_revisions refers to a row of tenants that is gone"):
        consistency.check(url)


def test_check_finds_damage_when_pages_were_overwritten(url: str, path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        consistency.check(url)


def test_what_contradicts_the_schema_is_a_conflict_when_it_gets_past_the_services(url: str) -> None:
    engine = database.open_database(url)
    with (
        pytest.raises(ConflictError, match="contradicts what is stored"),
        database.store_errors(engine),
        engine.begin() as c,
    ):
        c.execute(text("INSERT INTO settings_version VALUES (2, 0)"))
    engine.dispose()


class TestBackup:
    def test_the_copy_is_whole_when_the_original_is_in_use(self, url: str, tmp_path: Path) -> None:
        copy = tmp_path / "copy.db"
        with opened(url) as control_plane:
            control_plane.create_tenant("chat")
            secret = control_plane.keys.issue("chat").secret
            database.backup(url, copy)
            control_plane.create_tenant("later")

        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", "pdmuxd.db"]
        assert consistency.check(sqlite_url(copy)) == head_revision()
        with opened(sqlite_url(copy)) as restored:
            assert [tenant.name for tenant in restored.list_tenants()] == ["chat"]
            assert restored.snapshot().authenticate(secret).name == "chat"

    def test_nothing_is_overwritten_when_the_file_exists(self, url: str, tmp_path: Path) -> None:
        copy = tmp_path / "copy.db"
        copy.write_text("precious")
        with pytest.raises(StoreError, match="exists"):
            database.backup(url, copy)
        assert copy.read_text() == "precious"

    def test_no_part_of_a_copy_is_left_when_it_cannot_be_written(self, url: str, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="cannot write"):
            database.backup(url, tmp_path / "missing" / "copy.db")
        assert [file.name for file in tmp_path.iterdir()] == ["pdmuxd.db"]

    def test_it_is_refused_when_there_is_no_database(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="no database"):
            database.backup(sqlite_url(tmp_path / "none.db"), tmp_path / "copy.db")

    def test_it_is_refused_when_the_database_is_a_server(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="only SQLite"):
            database.backup("postgresql://host/db", tmp_path / "copy.db")


def test_the_settings_version_must_be_there_when_it_is_raised(tmp_path: Path) -> None:
    url = new_database(tmp_path)
    execute(tmp_path / "pdmuxd.db", "DELETE FROM settings_version")
    engine = database.open_database(url)
    with pytest.raises(StoreError, match="restore a backup"):
        ControlPlane(engine)
    engine.dispose()


class TestLostFile:
    """The file is removed or replaced while it is in use."""

    def test_nothing_is_said_to_be_kept_when_the_file_is_gone(self, url: str, path: Path) -> None:
        with opened(url) as control_plane:
            control_plane.create_tenant("chat")
            assert control_plane.store.lost_because() is None
            path.rename(path.with_name("moved.db"))
            with pytest.raises(StoreError, match=r"was removed while it is in use; nothing is written"):
                control_plane.create_tenant("lost")
            with pytest.raises(StoreError, match="was removed"):
                control_plane.list_tenants()
            assert "was removed" in str(control_plane.store.lost_because())
            assert not path.exists(), "no empty database in its place"
            # What is in memory goes on being served, and the file can come back.
            assert list(control_plane.directory.tenants) == ["chat"]
            path.with_name("moved.db").rename(path)
            assert control_plane.create_tenant("kept").version == 2

    def test_nothing_is_written_when_another_file_is_in_its_place(self, url: str, path: Path) -> None:
        with opened(url) as control_plane:
            other = path.with_name("other.db")
            database.backup(url, other)
            other.replace(path)
            with pytest.raises(StoreError, match="was replaced by another file"):
                control_plane.create_tenant("chat")
        with opened(url) as control_plane:
            assert control_plane.list_tenants() == []

    @pytest.mark.parametrize("suffix", ["-wal", "-shm"])
    def test_nothing_is_acknowledged_when_a_side_file_is_gone(
        self, url: str, path: Path, suffix: str
    ) -> None:
        side = path.with_name(path.name + suffix)
        with opened(url) as control_plane:
            control_plane.create_tenant("chat")
            assert control_plane.store.lost_because() is None
            side.unlink()
            assert f"{suffix} was removed" in str(control_plane.store.lost_because())
            with pytest.raises(StoreError, match="was removed while it is in use"):
                control_plane.create_tenant("lost")
        with opened(url) as control_plane:
            # An orderly end has written what was acknowledged before.
            assert [each.name for each in control_plane.list_tenants()] == ["chat"]

    def test_the_database_is_in_place_when_sqlite_makes_its_side_files_anew(
        self, url: str, path: Path
    ) -> None:
        with opened(url) as control_plane:
            control_plane.create_tenant("chat")
            control_plane.store._engine.dispose()  # the last connection takes the side files with it
            assert not path.with_name(path.name + "-wal").exists()
            assert control_plane.store.lost_because() is None
            control_plane.create_tenant("code")
            assert control_plane.store.lost_because() is None

    def test_no_change_is_acknowledged_when_the_file_goes_meanwhile(self, url: str, path: Path) -> None:
        def remove_and_change(control_plane: ControlPlane) -> None:
            with control_plane.store.change() as change:
                change.audit("test", subject="x")
                path.unlink()

        with opened(url) as control_plane:
            heard: list[object] = []
            control_plane.subscribe(heard.append)
            with pytest.raises(StoreError, match="was removed"):
                remove_and_change(control_plane)
            assert heard == []


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_check_finds_a_flipped_bit_in_stored_targets(url: str, path: Path, bit: int) -> None:
    with opened(url) as control_plane:
        control_plane.create_tenant("chat")
        control_plane.set_slo("chat", slo(0.04))
    assert consistency.check(url) == head_revision()
    stored = struct.pack(">d", 0.04)
    flipped = (int.from_bytes(stored, "big") ^ 1 << bit).to_bytes(8, "big")
    (value,) = struct.unpack(">d", flipped)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE slo_revisions SET tbt_s = ? WHERE version = 2", (value,))
    with pytest.raises(StoreError, match="is damaged: version 2 of the targets of tenant chat"):
        consistency.check(url)


def test_check_finds_an_audit_that_cannot_be_read(url: str, path: Path) -> None:
    with opened(url) as control_plane:
        control_plane.create_tenant("chat")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE audit SET after = '{' || after")
    with pytest.raises(StoreError, match="entry 1 of the audit cannot be read"):
        consistency.check(url)


def test_what_is_acknowledged_is_on_the_disk(url: str) -> None:
    engine = database.open_database(url)
    try:
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
    finally:
        engine.dispose()
