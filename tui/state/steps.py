"""The latest states of the engine, each with how long it lasted: the steps of a restart."""

from __future__ import annotations

from collections import deque

from pdmuxd.tui.client.wire import EngineEvent

KEPT = 12


class Steps:
    """Seconds are of the console's clock."""

    def __init__(self) -> None:
        self._seen: deque[tuple[str, float]] = deque(maxlen=KEPT)
        self._now_s = 0.0

    def on_engine(self, event: EngineEvent, now_s: float) -> None:
        """Take in the engine's state. If it has not changed, the last step goes on."""
        self._now_s = now_s
        name = "drained by an operator" if event.held and event.state == "serving" else event.state
        if not self._seen or self._seen[-1][0] != name:
            self._seen.append((name, now_s))

    def tick(self, now_s: float) -> None:
        """The last one lasts until now."""
        self._now_s = now_s

    def lines(self) -> list[tuple[str, float]]:
        """(state, seconds), oldest first; nothing while there was but one."""
        if len(self._seen) < 2:
            return []
        ends = [*(at_s for _, at_s in list(self._seen)[1:]), self._now_s]
        return [(name, end_s - at_s) for (name, at_s), end_s in zip(self._seen, ends, strict=True)]
