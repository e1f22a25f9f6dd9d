"""Opens, upgrades, checks and backs up the database. SQLite by default, any SQLAlchemy URL otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
)

from pdmuxd.controlplane.database import postgresql, sqlite
from pdmuxd.engine.core.errors import ConflictError, StoreError, StoreSetupError
from pdmuxd.migrations import alembic_config, head_revision, known_revisions

UPGRADE = "pdmuxd db upgrade"


def open_database(url: str) -> Engine:
    """Connect to a database of this version's schema.

    Raises: StoreError, with the command to run, if it is missing or of another schema revision.
    """
    parsed = _parse(url)
    path = sqlite.sqlite_path(parsed)
    if path is not None:
        if not path.is_file():
            raise StoreSetupError(f"there is no database at {path}; create it with: {UPGRADE}")
        sqlite.make_private(path)
    engine = _connect(parsed)
    try:
        with store_errors(engine), engine.connect() as connection:
            _require_head(_revision(connection), sqlite.name_of(parsed))
    except StoreError:
        engine.dispose()
        raise
    return engine


def upgrade(url: str) -> str:
    """Bring the schema to this version's revision, creating the database if there is none; return it.

    All or nothing: a revision that fails leaves the database as it was. Raises: StoreError.
    """
    parsed = _parse(url)
    path = sqlite.sqlite_path(parsed)
    if path is not None:
        sqlite.create_private(path)
    # Rebuilding a table must not delete the rows that refer to it, so foreign keys are off meanwhile. With
    # IMMEDIATE a second upgrade waits instead of failing half-way.
    # Rebuilding a large table may take minutes.
    engine = _connect(parsed, foreign_keys=False, begin="BEGIN IMMEDIATE", is_bounded=False)
    try:
        with store_errors(engine), engine.begin() as connection:
            if postgresql.is_postgresql(parsed):
                postgresql.hold_upgrades(connection)
            _require_known(_revision(connection), sqlite.name_of(parsed))
            command.upgrade(alembic_config(connection), "head")
            if path is not None:
                sqlite.require_whole(connection)
    finally:
        engine.dispose()
    return head_revision()


def backup(url: str, path: Path, *, at_least: int = 0, replace: bool = False) -> int:
    """Copy the database to a new file, also while the daemon uses it; the settings version that is in it.

    Raises: StoreError, with nothing left behind, also if that is less than `at_least`: then the daemon writes
    to other files than those that were copied.
    """
    source = sqlite.sqlite_path(_parse(url))
    if source is None:
        raise StoreError(
            "only SQLite databases are backed up here; use the server's own tool, such as pg_dump"
        )
    open_database(url).dispose()
    return sqlite.copy(source, path, at_least=at_least, replace=replace)


def restore(url: str, copy: Path, *, now: datetime) -> tuple[str, Path | None]:
    """Put a backup in the place of the database; nobody may use that meanwhile.

    Returns the schema revision of the backup, which may be older than this version's, and where the database
    that was there is kept. Nothing is changed unless the backup is whole. Raises: StoreError.
    """
    target = sqlite.sqlite_path(_parse(url))
    if target is None:
        raise StoreError("only SQLite databases are restored here; use the server's own tool, such as psql")
    if not copy.is_file():
        raise StoreError(f"there is no backup at {copy}")
    incoming = target.with_name(target.name + ".restoring")
    incoming.unlink(missing_ok=True)
    sqlite.copy(copy, incoming)
    try:
        revision = _revision_of_whole(incoming)
        kept = sqlite.set_aside(target, now=now)
        incoming.replace(target)
    except OSError as error:
        raise StoreError(f"cannot put {copy} in the place of {target}: {error.strerror}") from error
    finally:
        incoming.unlink(missing_ok=True)
    return revision, kept


def _revision_of_whole(path: Path) -> str:
    """The schema revision of a database that is whole. Raises: StoreError."""
    engine = _connect(_parse(sqlite.sqlite_url(path)))
    try:
        with store_errors(engine), engine.connect() as connection:
            revision = _revision(connection)
            _require_known(revision, sqlite.name_of(engine.url))
            sqlite.require_whole(connection)
    finally:
        engine.dispose()
    if revision is None:
        raise StoreError("the backup is no database of pdmuxd's: it has no schema revision")
    return revision


def require_in_place(engine: Engine) -> None:
    """Raise StoreError if the file of an open SQLite database was removed or replaced since.

    What is written then is lost, or goes into another database than the one that is shown.
    """
    sqlite.require_in_place(engine)


@contextmanager
def store_errors(engine: Engine) -> Iterator[None]:
    """Turn what the database library raises into our errors; their text names the database, no parameters."""
    name = sqlite.name_of(engine.url)
    try:
        yield
    except IntegrityError as error:
        raise ConflictError(f"the change contradicts what is stored: {error.orig}") from error
    except DBAPIError as error:
        if type(error) is DatabaseError:
            # Neither locked nor unreachable: this is SQLite's error for a file that is damaged, or is no
            # database.
            raise StoreSetupError(f"{name} cannot be read: {error.orig}") from error
        raise StoreError(f"{name} does not answer as it should: {error.orig}") from error
    except SQLAlchemyError as error:
        raise StoreError(f"{name} does not answer as it should: {error}") from error


def _parse(url: str) -> URL:
    try:
        return postgresql.with_driver(make_url(url))
    except (ArgumentError, ValueError) as error:
        # Without its text, which may hold what was given, password and all.
        raise StoreSetupError(
            "database_url is not a URL; allowed are such as sqlite:////path/pdmuxd.db and "
            "postgresql://USER:PASSWORD@HOST/DATABASE"
        ) from error


def _connect(
    url: URL, *, foreign_keys: bool = True, begin: sqlite.Begin = "BEGIN", is_bounded: bool = True
) -> Engine:
    is_sqlite = url.get_backend_name() == "sqlite"
    options: dict[str, Any] = {}
    if is_sqlite:
        options = {"connect_args": {"timeout": sqlite.BUSY_TIMEOUT_S}}
    elif postgresql.is_postgresql(url):
        options = postgresql.options(statements_end=is_bounded)
    try:
        engine = create_engine(url, hide_parameters=True, **options)
    except (NoSuchModuleError, ModuleNotFoundError, ArgumentError) as error:
        shown = url.render_as_string()
        why = postgresql.INSTALL if postgresql.is_postgresql(url) else str(error)
        raise StoreSetupError(f"database_url is {shown!r}: {why}") from error
    if is_sqlite:
        sqlite.remember_file(engine)
        sqlite.configure(engine, foreign_keys=foreign_keys, begin=begin)
    elif postgresql.is_postgresql(url) and is_bounded:
        postgresql.bound_waits(engine)
    return engine


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _require_head(revision: str | None, name: str) -> None:
    _require_known(revision, name)
    head = head_revision()
    if revision is None:
        raise StoreSetupError(f"{name} is empty; create its tables with: {UPGRADE}")
    if revision != head:
        raise StoreSetupError(f"{name} is of schema {revision}, this pdmuxd needs {head}; run: {UPGRADE}")


def _require_known(revision: str | None, name: str) -> None:
    if revision is not None and revision not in known_revisions():
        raise StoreSetupError(
            f"{name} is of schema {revision}, this pdmuxd knows up to {head_revision()}; install the "
            f"pdmuxd that wrote it, or restore a backup and run: {UPGRADE}"
        )
