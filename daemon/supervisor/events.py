"""What happens to the engine, as the supervisor publishes it in the event loop.

It publishes the engine's messages as well, when it has acted on them; a `RequestRecord` by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdmuxd.controlplane.node.engine_status import EngineState
from pdmuxd.daemon.supervisor.address import EngineAddress

Publish = Callable[[object], None]
"""Must neither block nor raise."""


@dataclass(frozen=True, slots=True)
class EngineServing:
    """Requests may be sent to `address`, until the next change of the engine's state."""

    address: EngineAddress


@dataclass(frozen=True, slots=True)
class EngineAccepting:
    """New requests may be taken: a drain has ended, or an engine serves that is not held."""


@dataclass(frozen=True, slots=True)
class EngineUnresponsive:
    """A serving engine has fallen silent, or is heard again."""

    is_unresponsive: bool


@dataclass(frozen=True, slots=True)
class EngineStateChanged:
    """The engine is now `starting`, `draining` or `down`."""

    state: EngineState
    reason: str | None
