"""Requests that are refused since they were in flight when engines ended; the gateway knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is refused: one body of a tenant, or all of a tenant's requests."""

    tenant: str
    body: str | None
    """The body's hash, in hexadecimal; None if it is the whole tenant."""
    request_ids: tuple[str, ...]
    """The requests that were in flight at those ends, the newest last."""
    engine_errors: tuple[str, ...]
    """Why those engines ended, the newest last; shorter while the last one's reason is not known yet."""
    left_s: float
    """After that it is released by itself."""


class QuarantineActions(Protocol):
    """Called in the daemon's event loop."""

    def held(self) -> Sequence[Held]:
        """List what is refused now."""

    def release(self, tenant: str | None = None) -> int:
        """Forget the ends of engines, of one tenant or of all; how many entries that releases."""


class NothingHeld:
    """Used where no daemon runs."""

    def held(self) -> Sequence[Held]:
        return ()

    def release(self, tenant: str | None = None) -> int:  # noqa: ARG002 - the interface
        return 0
