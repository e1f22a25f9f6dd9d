"""The process behind the scheduler: it hands the tokens of a step to clients one after another."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pdmuxd.engine.core.types import Decision
from pdmuxd.engine.emulator.observer import EngineObserver
from pdmuxd.engine.emulator.requests import EmulatedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Seconds of that process. What it does while it is busy with something else comes later."""

    token_s: float = 0.0
    """Of each token."""
    step_s: float = 0.0
    """Of each step, before its first token."""
    request_s: float = 0.0
    """Of each request, when it arrives."""


class Front:
    """Implements EngineObserver: tells another observer the same, as late as clients see it.

    All goes through one queue, so that a request's end comes behind its tokens. `stalled_s` says for how long
    the process stands still at an instant. `EmulatedRequest.delivered_s` gets the instants.
    """

    def __init__(
        self, observer: EngineObserver, delivery: Delivery, stalled_s: Callable[[float], float]
    ) -> None:
        self._observer = observer
        self._delivery = delivery
        self._stalled_s = stalled_s
        self._free_s = 0.0
        """When it will have done all that it was given."""
        self._step_s = -math.inf
        """When the step was read whose tokens it has."""
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()

    @property
    def next_due_s(self) -> float:
        """When something gets to a client next; infinity if nothing is on its way."""
        return self._queue[0][0] if self._queue else math.inf

    def arrived(self, now_s: float) -> None:
        """A request came, which it reads and passes on."""
        self._busy(now_s, self._delivery.request_s)

    def flush(self, until_s: float) -> None:
        """Tell the observer what has got to clients up to an instant."""
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            queue.popleft()[1]()

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        due_s = self._token(request, now_s)
        self._queue.append((due_s, lambda: self._observer.on_first_token(request, due_s)))

    def on_decode_tokens(self, requests: Iterable[EmulatedRequest], now_s: float) -> None:
        for request in requests:
            self._decoded(request, now_s)

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        due_s = self._free_s = max(self._free_s, now_s)
        self._queue.append((due_s, lambda: self._observer.on_end(request, due_s)))

    def on_step(self, decision: Decision, start_s: float, end_s: float) -> None:
        self._observer.on_step(decision, start_s, end_s)

    def _decoded(self, request: EmulatedRequest, now_s: float) -> None:
        due_s = self._token(request, now_s)
        self._queue.append((due_s, lambda: self._observer.on_decode_tokens((request,), due_s)))

    def _token(self, request: EmulatedRequest, now_s: float) -> float:
        if now_s != self._step_s:
            self._step_s = now_s
            self._busy(now_s, self._delivery.step_s)
        self._busy(now_s, self._delivery.token_s)
        if request.delivered_s is None:
            request.delivered_s = array("d")
        request.delivered_s.append(self._free_s)
        return self._free_s

    def _busy(self, now_s: float, seconds: float) -> None:
        begin_s = max(self._free_s, now_s)
        self._free_s = begin_s + seconds + self._stalled_s(begin_s)
