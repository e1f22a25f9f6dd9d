"""What an operator may do to the engine; the daemon does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pdmuxd.controlplane.node.engine_status import EngineState
from pdmuxd.engine.core.errors import EngineError

Action = Literal["start", "drain", "resume", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of an action; `changed` is False if nothing had to be done."""

    action: Action
    changed: bool
    state: EngineState
    text: str


class EngineActions(Protocol):
    """Called in the daemon's event loop. Each starts its action and does not wait for it. All raise
    ConflictError if the engine's state does not allow it."""

    def start(self) -> Done:
        """Start an engine that is down at once, without waiting for its back-off."""

    def drain(self) -> Done:
        """Refuse new requests; those in flight finish, the engine stays."""

    def resume(self) -> Done:
        """End a drain."""

    def restart(self, *, at_once: bool) -> Done:
        """End the engine and start another, after a drain unless `at_once`."""


class NoEngine:
    """Used where no daemon runs. Each raises: EngineError."""

    def start(self) -> Done:
        raise _no_daemon()

    def drain(self) -> Done:
        raise _no_daemon()

    def resume(self) -> Done:
        raise _no_daemon()

    def restart(self, *, at_once: bool) -> Done:  # noqa: ARG002 - the interface
        raise _no_daemon()


def _no_daemon() -> EngineError:
    return EngineError("no daemon is running, so there is no engine to act on")
