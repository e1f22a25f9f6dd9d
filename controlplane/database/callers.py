"""The caller: the token or key behind a call, and the reason that came with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

Role = Literal["admin", "reader", "tenant"]
CallerKind = Literal[
    "file-token", "reader-token", "admin-token", "api-key", "proxy", "command-line", "daemon"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One who was let in. `name` is the token's name or the key's id, never a secret."""

    kind: CallerKind
    name: str
    role: Role
    tenant: str | None = None
    """Of an API key; None for those who act on the whole daemon."""
    scopes: frozenset[str] = frozenset()
    """Of an API key."""


DAEMON = Caller(kind="daemon", name="pdmuxd", role="admin")
FILE_TOKEN = Caller(kind="file-token", name="admin-token", role="admin")
READER_TOKEN = Caller(kind="reader-token", name="reader-token", role="reader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """The caller in whose name a change is made, and why."""

    caller: Caller
    why: str | None = None
    source: str | None = None
    """The address that the call came from; None where it came from no network."""


_BY_ITSELF = Acting(caller=DAEMON)
_acting: ContextVar[Acting | None] = ContextVar("pdmuxd_acting", default=None)


def now_acting() -> Acting:
    """The caller in whose name this task or thread acts; the daemon, unless something else was set."""
    return _acting.get() or _BY_ITSELF


@contextmanager
def acting(caller: Caller, why: str | None = None, source: str | None = None) -> Iterator[None]:
    """Make the changes within this block in `caller`'s name; within another block, from where that came.

    Kept in a context variable, so that it follows a call into the worker thread that serves it.
    """
    token = _acting.set(Acting(caller=caller, why=why, source=source or now_acting().source))
    try:
        yield
    finally:
        _acting.reset(token)
