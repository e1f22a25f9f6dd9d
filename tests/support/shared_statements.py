"""Statements are compiled once for all databases of a process, as a daemon does for its one.

SQLAlchemy keeps what it has compiled per engine and per dialect. Tests open a new database each, and to
compile the same statements anew for each took a fifth of the time of the control plane's tests.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

_compiled: dict[Any, Any] = {}


def share_statements() -> None:
    """Let all SQLite engines of this process share their statements: no test configures a dialect."""

    def is_equal(_self: object, other: object) -> bool:
        return type(other) is SQLiteDialect_pysqlite

    # A part of the key of each statement, also of those that mappers keep.
    dialect: Any = SQLiteDialect_pysqlite
    dialect.__eq__ = is_equal
    dialect.__hash__ = lambda _self: hash(SQLiteDialect_pysqlite)

    @event.listens_for(Engine, "engine_connect")
    def on_connect(connection: Connection) -> None:
        if type(connection.dialect) is SQLiteDialect_pysqlite:
            connection.execution_options(compiled_cache=_compiled)
