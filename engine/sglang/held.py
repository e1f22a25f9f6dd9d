"""Times of work on the device, apart from the host's: it waits behind other work until all of it was
launched.

Launching 32 layers takes a host 20 to 32 ms whatever they compute (one H100, 2026-11-25), so that events
around a prefill of less tell of the host. What launching takes is told beside it: while serving, it is the
longer of the two that counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pdmuxd.engine.sglang.api.types.device import Event, Stream
from pdmuxd.engine.sglang.gauges import GpuReading, ReadGpu
from pdmuxd.engine.sglang.streams.base import LaunchStreams

FIRST_LAUNCH_S = 0.03
"""Assumed of a launch until one was seen."""
SPARE_RATIO, SPARE_S = 1.5, 0.004
"""A hold lasts so much longer than the last launch took: launching scatters, up to twice in a stall."""
LONGEST_HOLD_S = 0.4
TRIES = 3
"""A hold that was too short is made twice as long, so often."""

BatchT = TypeVar("BatchT")


class Launched(NamedTuple):
    """Events of one run on its stream."""

    start: Event
    last: Event
    """In front of the last part that was launched: if the device is there when that was launched, it waited
    for the host."""
    end: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What some runs of one batch took."""

    seconds: tuple[float, ...]
    launch_s: tuple[float, ...]
    is_host_bound: bool
    reading: GpuReading


class _Run(NamedTuple):
    """One run, as one rank saw it."""

    seconds: float
    launch_s: float
    is_late: bool
    """It waited for the host."""


def _of_all(ranks: Sequence[_Run]) -> _Run:
    """One run of several ranks. A rank whose hold ends first waits for the others in its first all-reduce,
    inside of what it times, so the shortest time is the run's: the rank that came last did not wait. By rank
    0's events alone a prefill of 32 tokens took 43 ms on 132 SMs and 4 ms on 52 (two H200s, 2026-11-28).
    Launching is over when all have launched."""
    return _Run(
        min(rank.seconds for rank in ranks),
        max(rank.launch_s for rank in ranks),
        any(rank.is_late for rank in ranks),
    )


class HeldRuns(Generic[BatchT]):
    """Runs batches behind holds, on every rank alike; `gather` gives what each rank has to all of them, in
    their order."""

    def __init__(
        self,
        streams: LaunchStreams,
        gather: Callable[[Any], Sequence[Any]],
        read_gpu: ReadGpu | None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        is_one_gpu: bool = True,
    ) -> None:
        self._streams = streams
        self._gather = gather
        self._read_gpu = read_gpu
        self._clock = clock
        self._is_one_gpu = is_one_gpu
        """Ranks would come to the end of their products at different times, and the first all-reduce would
        wait for the last of them."""
        self._launch_s = FIRST_LAUNCH_S

    def run(
        self,
        stream: Stream,
        make: Callable[[], BatchT],
        launch: Callable[[BatchT], Launched],
        *,
        repeats: int,
        in_a_row: bool,
    ) -> Held:
        """So many runs. `in_a_row`: all behind one hold, for work that is a launch or two; a stream takes
        about a thousand launches ahead, which is two prefills. One GPU is at work during such a hold, as
        it is while serving: fused steps of 1,024 tokens took 7% less behind a kernel that only spins, at
        1,875 MHz and not at 1,635 (two H100s, 2026-11-27)."""
        self._timed(make, launch)  # the first run chooses kernels and takes memory
        held = Held(seconds=(), launch_s=(), is_host_bound=False, reading=GpuReading())
        for number in range(TRIES if repeats else 0):
            held = self._held(stream, make, launch, repeats, in_a_row=in_a_row, longer=2.0**number)
            if not held.is_host_bound:
                break
        return held

    def _timed(self, make: Callable[[], BatchT], launch: Callable[[BatchT], Launched]) -> None:
        batch = make()
        began_s = self._clock()
        end = launch(batch).end
        self._launch_s = max(self._gather(self._clock() - began_s))
        self._streams.wait(end)

    def _held(
        self,
        stream: Stream,
        make: Callable[[], BatchT],
        launch: Callable[[BatchT], Launched],
        repeats: int,
        *,
        in_a_row: bool,
        longer: float,
    ) -> Held:
        batches = [make() for _ in range(repeats)]
        runs: list[Launched] = []
        launch_s: list[float] = []
        late: list[bool] = []
        is_held, reading = False, GpuReading()
        for batch in batches:
            if not runs or not in_a_row:
                launches = repeats if in_a_row else 1
                hold_s = longer * (SPARE_RATIO * self._launch_s * launches + SPARE_S)
                is_at_work = in_a_row and self._is_one_gpu
                is_held = self._streams.hold(stream, min(hold_s, LONGEST_HOLD_S), is_at_work=is_at_work)
            began_s = self._clock()
            run = launch(batch)
            launch_s.append(self._clock() - began_s)
            late.append(is_held and self._streams.is_done(run.last))
            runs.append(run)
            if not in_a_row:
                self._streams.wait(run.start)
                reading = self._read()
                self._streams.wait(run.end)
        if in_a_row:
            self._streams.wait(runs[-1].start)
            reading = self._read()
            self._streams.wait(runs[-1].end)
        took_s = [self._streams.elapsed_s(run.start, run.end) for run in runs]
        own = [_Run(*one) for one in zip(took_s, launch_s, late, strict=True)]
        all_runs = [_of_all(ranks) for ranks in zip(*self._gather(own), strict=True)]
        kept = [run for run in all_runs if not run.is_late] or all_runs
        self._launch_s = max(run.launch_s for run in all_runs)
        return Held(
            seconds=tuple(run.seconds for run in kept),
            launch_s=tuple(run.launch_s for run in all_runs) if is_held else (),
            is_host_bound=all(run.is_late for run in all_runs),
            reading=reading,
        )

    def _read(self) -> GpuReading:
        """While the device is at work."""
        try:
            return self._read_gpu() if self._read_gpu is not None else GpuReading()
        except RuntimeError:
            return GpuReading()
