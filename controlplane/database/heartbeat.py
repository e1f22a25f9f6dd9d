"""A small write of each daemon, every few seconds: proof that its database can be written."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, delete, select, update
from sqlmodel import Field, Session, col

from pdmuxd.controlplane.database.row import Row, UtcDateTime

KEPT = timedelta(days=1)
"""A daemon that has written nothing for longer is forgotten."""


ALIVE = timedelta(minutes=1)
"""A daemon that has written nothing for longer is taken to be gone: it writes every two seconds."""


class HeartbeatRow(Row, table=True):
    """When a daemon has last written. The instant differs each time: SQLite skips a write of equal bytes."""

    __tablename__ = "heartbeats"

    node: str = Field(primary_key=True, max_length=32)
    """Made by chance at each start of a daemon."""
    at: datetime = Field(sa_type=UtcDateTime)


def beat(session: Session, node: str, now: datetime) -> None:
    """Write that a daemon is there, and forget those that are long gone."""
    mine = update(HeartbeatRow).where(col(HeartbeatRow.node) == node).values(at=now)
    if not session.connection().execute(mine).rowcount:
        session.add(HeartbeatRow(node=node, at=now))
        gone = delete(HeartbeatRow).where(col(HeartbeatRow.at) < now - KEPT)
        session.connection().execute(gone)
    session.flush()


def alive(node: str, now: datetime) -> Select[Any]:
    """The daemons that are there besides `node`, which asks."""
    return select(col(HeartbeatRow.node)).where(
        (col(HeartbeatRow.at) >= now - ALIVE) | (col(HeartbeatRow.node) == node)
    )
