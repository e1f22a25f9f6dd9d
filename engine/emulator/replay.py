"""The virtual-time driver: feeds requests to an emulated engine as they arrive, as fast as it computes.

Pure: no files, no clock. Virtual time is what the engine is told; samples are taken at fixed virtual
intervals, so that the same trace gives the same samples on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.emulator.requests import EmulatedRequest


class ReplayEngine(Protocol):
    """What the driver needs of `EmulatedEngine`."""

    def submit(self, request: EmulatedRequest, now_s: float) -> None:
        """Accept a request at `now_s`, which is never before an earlier call's time."""

    def next_event_s(self) -> float:
        """When something happens next; infinite if nothing will without another request."""

    def advance(self, until_s: float) -> None:
        """Run all events up to and including `until_s`."""


def drive(
    engine: ReplayEngine,
    requests: Iterable[EmulatedRequest],
    *,
    sample_every_s: float,
    on_sample: Callable[[float], None],
) -> None:
    """Run `requests`, in the order of their `arrival_s`, until nothing is left to happen.

    `on_sample` is called at 0, at every multiple of `sample_every_s`, and once at or after the end;
    it may read the engine. Requests that are still open afterwards will never end.
    Raises: EngineInvariantError if arrivals run backwards or the engine's time stands still.
    """
    clock = _Clock(engine, sample_every_s, on_sample)
    for request in requests:
        clock.run_to(request.arrival_s)
        engine.submit(request, request.arrival_s)
    while engine.next_event_s() < math.inf:
        clock.run_to(clock.next_sample_s)
    on_sample(clock.now_s)


class _Clock:
    """Advances the engine from sample to sample."""

    def __init__(
        self, engine: ReplayEngine, sample_every_s: float, on_sample: Callable[[float], None]
    ) -> None:
        self._engine = engine
        self._sample_every_s = sample_every_s
        self._on_sample = on_sample
        self._samples = 0
        self.now_s = 0.0

    @property
    def next_sample_s(self) -> float:
        """A product, not a sum: adding many intervals up would accumulate rounding errors."""
        return self._samples * self._sample_every_s

    def run_to(self, until_s: float) -> None:
        """Advance to `until_s`, sampling on the way."""
        if until_s < self.now_s:
            raise EngineInvariantError(f"replay asked for {until_s:g} s after {self.now_s:g} s")
        while self.next_sample_s <= until_s:
            self._advance(self.next_sample_s)
            self._on_sample(self.now_s)
            self._samples += 1
        self._advance(until_s)

    def _advance(self, until_s: float) -> None:
        self._engine.advance(until_s)
        self.now_s = until_s
        if self._engine.next_event_s() <= until_s:
            raise EngineInvariantError(f"the engine left an event behind at {until_s:g} s of virtual time")
