"""What the control plane may know about the engine; the daemon's supervisor fills it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pdmuxd.engine.link.messages import EngineStats, Hello

EngineState = Literal["starting", "serving", "draining", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The engine at one instant.

    `since_s` is the Unix time at which `state` began. `hello` and `stats` are the last that the
    engine sent, None before the first. Settings of `acked_version` are in force in the engine;
    `wanted_version` was last sent to it.
    """

    state: EngineState
    since_s: float
    pid: int | None = None
    restarts: int = 0
    hello: Hello | None = None
    stats: EngineStats | None = None
    acked_version: int = 0
    wanted_version: int = 0
    last_error: str | None = None
    is_held: bool = False
    """An operator drains it; it serves again when it is resumed."""
    profile_difference: str | None = None
    """Why the active profile is not in force in this engine; None if it is, or none is active."""
    policy_difference: str | None = None
    """Why the engine goes on with the policy and splits that it had; None if it has taken what is wanted."""


NO_ENGINE = EngineStatus(state="down", since_s=0.0, last_error="no daemon is running")
"""Seen by those who work on the database without a daemon."""
