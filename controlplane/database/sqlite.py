"""What is special to SQLite: a private file, its pragmas, its checks, and a copy while in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, Engine, event

from pdmuxd.engine.core.errors import StoreError

BUSY_TIMEOUT_S = 5.0
"""How long a writer waits for another; a change takes milliseconds, a backup does not block writers."""

Begin = Literal["BEGIN", "BEGIN IMMEDIATE"]
TO_WRITE = {"sqlite_begin": "BEGIN IMMEDIATE"}
"""Execution options of a transaction that reads before it writes. SQLite waits for another writer only until
a transaction has read: later it refuses at once if the other has changed anything since."""


def sqlite_url(path: Path) -> str:
    """The URL of a database file, with what a URL cannot hold (%, ?, #) escaped."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite database, None for a server. Raises: StoreError for one without a file."""
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        shown = url.render_as_string()
        raise StoreError(f"database_url is {shown!r}; a SQLite URL must name a file: sqlite:////path")
    return Path(url.database)


def name_of(url: URL) -> str:
    """What errors call a database: its file, or server and database without user and password."""
    if url.get_backend_name() == "sqlite":
        return f"the database {url.database}"
    return f"the database {url.database} on {url.host}"


def configure(engine: Engine, *, foreign_keys: bool, begin: Begin) -> None:
    """Give every connection its pragmas, and every transaction the given beginning."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's own class
        # The driver would begin a transaction at the first write only, so that two reads in one
        # transaction could see two states; we begin it ourselves, below.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        # An edit that was acknowledged is on the disk: with NORMAL a power cut may take the last ones back.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", begin))


def remember_file(engine: Engine) -> None:
    """Keep which files the database is, for `require_in_place`."""
    path = sqlite_path(engine.url)
    if path is not None:
        _files[engine] = {each: _identity(each) for each in (path, *_side_files(path))}


def require_in_place(engine: Engine) -> None:
    """Raise StoreError if one of its files is another one now, or none.

    SQLite itself makes and removes the side files, so of them those are missed that this process has open and
    that are no longer in their place: what was written last is in them alone.
    """
    path = sqlite_path(engine.url)
    known = _files.get(engine)
    if path is None or known is None:
        return
    for each, identity in known.items():
        now = _identity(each)
        if now == identity:
            continue
        if each != path and str(each) not in _removed_but_open():
            known[each] = now
            continue
        what = "was removed" if now is None else "was replaced by another file"
        remedy = "Put the file back, or restore a backup, and start again"
        if each != path:
            remedy = "Stop the daemon by SIGTERM: at its end it writes what is in the file into the database"
        raise StoreError(
            f"the database {each} {what} while it is in use; nothing is written any more. {remedy}"
        )


def _side_files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _removed_but_open() -> set[str]:
    """The files that this process has open and that are in no folder any more, under their last names."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            name = str(link.readlink())
            if name.endswith(_DELETED):
                found.add(name.removesuffix(_DELETED))
    return found


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, which tell a file from another in its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_files: WeakKeyDictionary[Engine, dict[Path, tuple[int, int] | None]] = WeakKeyDictionary()
_DELETED = " (deleted)"
"""What Linux writes behind such a name."""


def require_whole(connection: Connection) -> None:
    """Raise StoreError if SQLite finds damage, or a row that refers to nothing."""
    name = name_of(connection.engine.url)
    verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if verdict != "ok":
        raise StoreError(f"{name} is damaged: {verdict}; restore a backup")
    orphan = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if orphan is not None:
        table, _row, parent, _key = orphan
        raise StoreError(f"{name} is damaged: a row of {table} refers to a row of {parent} that is gone")


def create_private(path: Path) -> None:
    """Create the file and its folder if they are missing. Raises: StoreError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"cannot create the database {path}: {error.strerror}") from error
    make_private(path)


def make_private(path: Path) -> None:
    """Let only the owner read the file (0600); SQLite gives its side files the same mode."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise StoreError(f"cannot make the database {path} private: {error.strerror}") from error


def set_aside(path: Path, *, now: datetime) -> Path | None:
    """Rename a database with what belongs to it; its new path, None if there was none. Raises: OSError."""
    aside = path.with_name(f"{path.name}.before-restore-{now:%Y%m%dT%H%M%SZ}")
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside if aside.exists() else None


def copy(source: Path, target: Path, *, at_least: int = 0, replace: bool = False) -> int:
    """Copy a database to a new file of mode 0600, which appears only when it is complete and checked.

    Returns its settings version (0 if it has none). Raises: StoreError, also if `target` exists and is not to
    be replaced, or if that version is less than `at_least`.
    """
    if target.exists() and not replace:
        raise StoreError(f"{target} exists; name a file that does not")
    partial = target.with_name(target.name + ".partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(partial)) as copied:
            live.backup(copied)
            # A copy in the journal mode of the original would need side files of its own.
            copied.execute("PRAGMA journal_mode = DELETE")
            (verdict,) = copied.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise StoreError(f"the copy is damaged: {verdict}; check the disk")
            version = _settings_version(copied)
        if version < at_least:
            raise StoreError(
                f"{source} holds settings version {version}, and the daemon serves by version {at_least}: it "
                "writes to other files than these. Nothing was copied. Stop it by SIGTERM, then back up"
            )
        partial.replace(target)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise StoreError(f"cannot copy the database {source}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return version


def _settings_version(connection: sqlite3.Connection) -> int:
    """0 where there is no such table: whoever restores that is told by its schema revision."""
    with suppress(sqlite3.OperationalError):
        found = connection.execute("SELECT version FROM settings_version").fetchone()
        return 0 if found is None else int(found[0])
    return 0
