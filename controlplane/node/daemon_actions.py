"""What an operator may do to the daemon itself; the daemon does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pdmuxd.engine.core.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The settings that have changed since they were read last, by name, and what each of them takes."""

    in_force: tuple[str, ...] = ()
    needs_engine_restart: tuple[str, ...] = ()
    needs_upgrade: tuple[str, ...] = ()
    """Another process of this daemon, which `pdmuxd upgrade` starts without losing a request."""
    needs_restart: tuple[str, ...] = ()
    """Addresses and directories, which a daemon cannot change while it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyState:
    """Something that the daemon does by itself, and how it went."""

    name: str
    period_s: float | None
    """None: it goes on, or is done once."""
    last_run_s: float | None
    """Unix time at which it began last."""
    failed: str | None
    """Why it did not do its work the last time."""
    is_alone: bool


class DaemonActions(Protocol):
    """Called in the daemon's event loop."""

    def duty_states(self) -> tuple[DutyState, ...]:
        """What it does by itself."""

    def reload(self) -> Reloaded:
        """Read the settings again. Raises: InvalidValueError; nothing has changed then."""

    async def upgrade(self, *, migrate: bool) -> str:
        """Give the place to a new process; its version. Raises: ConflictError; nothing has changed then."""


class NoDaemon:
    """Where no daemon runs. Each action raises: EngineError."""

    def duty_states(self) -> tuple[DutyState, ...]:
        return ()

    def reload(self) -> Reloaded:
        raise EngineError("no daemon is running, so there is none to reload")

    async def upgrade(self, *, migrate: bool) -> str:  # noqa: ARG002 - the interface
        raise EngineError("no daemon is running, so there is none to upgrade")
