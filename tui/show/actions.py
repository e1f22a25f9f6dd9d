"""The actions on the engine, and which of them need the engine's name to be typed."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.tui.client.wire import EngineEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One route below /engine."""

    name: str
    key: str
    does: str
    is_dangerous: bool = False
    """Clients notice."""


START = Action(
    name="start", key="a", does="start an engine that is down, without waiting for the next attempt"
)
DRAIN = Action(
    name="drain", key="d", does="refuse new requests and let those in flight finish", is_dangerous=True
)
RESUME = Action(name="resume", key="u", does="take new requests again after a drain")
RESTART = Action(
    name="restart", key="x", does="drain, end the engine process and start a new one", is_dangerous=True
)
ACTIONS = (START, DRAIN, RESUME, RESTART)


def name_to_type(engine: EngineEvent | None) -> str:
    """The name of the model that the engine serves: it tells this engine from another tunnel's."""
    return (engine.model if engine else None) or "engine"
