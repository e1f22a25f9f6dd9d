"""Decode steps beside prefills that follow each other: what a measurement of both launches, and when.

Rank 0 alone looks at the device; the others launch what it says, in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdmuxd.engine.loop.port import EnginePort
from pdmuxd.engine.sglang.api.types.device import Event
from pdmuxd.engine.sglang.api.types.requests import Batch
from pdmuxd.engine.sglang.streams.base import LaunchStreams

_LAYERS_AHEAD = 6
"""Prefill layers in flight beside decode: enough to keep the stream fed, few enough for decode's launches."""
_STEPS_AHEAD = 2
_POLL_S = 0.00002

Span = tuple[Event, Event]
"""Start and end event."""


def shortest(ranks: Sequence[Sequence[float | None]]) -> tuple[float, ...]:
    """Seconds of each span that rank 0 tells, the shortest of all ranks'. In the longer ones a rank waits, in
    an all-reduce, for the one that launched last, and a late launch is not contention (decision 0008)."""
    spans = zip(*ranks, strict=True)
    return tuple(min(s for s in span if s is not None) for span in spans if span[0] is not None)


@dataclass(frozen=True, slots=True)
class _Next:
    """What is launched next; nothing once the prefill is done."""

    step: bool = False
    layers: int = 0


class ColocatedMeasurement:
    """One measurement; not thread-safe."""

    def __init__(
        self,
        port: EnginePort,
        streams: LaunchStreams,
        *,
        step: Callable[[], Span],
        layer: Callable[[Batch], Span],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`step` launches a decode step, `layer` the next layer of a prefill."""
        self._port = port
        self._streams = streams
        self._step = step
        self._layer = layer
        self._sleep = sleep
        self._decides = port.state.is_first_rank
        self._steps: list[Span] = []

    def run(self, batch: Batch) -> Span:
        """One prefill from its first layer to its last, which the device has passed then."""
        layers: list[Span] = []
        following = _Next()
        while True:
            following = self._port.agree(self._following(layers, following) if self._decides else None)
            if following.step:
                self._steps.append(self._step())
            elif following.layers:
                layers += [self._layer(batch) for _ in range(following.layers)]
            else:
                self._streams.wait(layers[-1][1])
                return layers[0][0], layers[-1][1]

    def steps_within(self, begin: Event, end: Event) -> list[float | None]:
        """Seconds of each step, None unless it lies wholly between two events. Each is timed from its own
        start, as in serving: if the host launches it late, the wait is not contention (decision 0008)."""
        elapsed_s = self._streams.elapsed_s
        self._streams.wait(self._steps[-1][1])
        return [
            elapsed_s(start, stop) if elapsed_s(begin, start) >= 0.0 and elapsed_s(stop, end) >= 0.0 else None
            for start, stop in self._steps
        ]

    def _following(self, layers: list[Span], last: _Next) -> _Next:
        """What to launch next, once there is something: a step and a layer by turns, while few enough are in
        flight."""
        is_done, stepped = self._streams.is_done, last.step
        while True:
            left = self._port.state.layers - len(layers)
            if not left and is_done(layers[-1][1]):
                return _Next()
            in_flight = sum(not is_done(end) for _, end in self._steps[-_STEPS_AHEAD:])
            if in_flight < _STEPS_AHEAD and not stepped:
                return _Next(step=True)
            ahead = layers[-_LAYERS_AHEAD:]
            if left and (len(ahead) < _LAYERS_AHEAD or is_done(ahead[0][1])):
                return _Next(layers=min(left, self._at_once(ahead)))
            self._sleep(_POLL_S)
            stepped = False

    def _at_once(self, ahead: list[Span]) -> int:
        """How many layers to launch together. Several ranks have to agree about each launch, which takes
        time, so they launch as many as there is room for."""
        if self._port.state.tp_size == 1:
            return 1
        return _LAYERS_AHEAD - sum(not self._streams.is_done(end) for _, end in ahead)
