"""Works the lanes of a session off, each beside the others, and says every second how far it is."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_servers.outcome import MISSED
from gpu_session.checks import Checks
from gpu_session.place import Place, environment_of, last_line
from gpu_session.processes import StepProcess
from gpu_session.records import Ended, Record, Records
from gpu_session.step import Lane, Step

_RESERVE_S = 15.0
"""Left at the end for servers to be ended and tables to be printed."""
_QUICK_S = 60.0
"""A step that fails sooner has done nothing, and is tried once more."""


@dataclass(slots=True)
class Now:
    """What a lane does at the moment."""

    step: Step
    began_s: float
    limit_s: float


@dataclass(slots=True)
class Work:
    """One call: its time, its records, what runs."""

    place: Place
    budget_s: float
    records: Records
    checks: Checks
    done: frozenset[str] = frozenset()
    """Not to be done again."""
    began_s: float = field(default_factory=time.monotonic)
    now: dict[str, Now] = field(default_factory=dict)
    _over: dict[str, asyncio.Event] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self.began_s + self.budget_s - time.monotonic()

    async def all(self, lanes: Sequence[Lane]) -> None:
        """Everything that is not done and that there is time for."""
        self._over = {step.name: asyncio.Event() for lane in lanes for step in lane.steps}
        ended = await asyncio.gather(*(self._lane(lane) for lane in lanes), return_exceptions=True)
        # Only now: a lane that cannot go on must not take another one along.
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def _lane(self, lane: Lane) -> None:
        try:
            for step in lane.steps:
                for name in step.after:
                    if name in self._over:
                        await self._over[name].wait()
                if step.fills_s or step.name not in self.done:
                    await self._step(lane, step)
                self._over[step.name].set()
        finally:
            for step in lane.steps:
                self._over[step.name].set()

    async def _step(self, lane: Lane, step: Step) -> None:
        """Once, and once more if it failed at once."""
        for _ in range(2):
            record = await self._try(lane, step)
            self.records.add(record)
            self.say(f"{lane.name}: {step.name}: {record.ended}, {record.took_s:.0f} s: {record.said}")
            if record.ended is not Ended.FAILED or record.took_s > _QUICK_S:
                return

    async def _try(self, lane: Lane, step: Step) -> Record:
        began_s = time.monotonic()

        def ended(how: Ended, said: str) -> Record:
            return Record(step=step.name, ended=how, took_s=round(time.monotonic() - began_s, 1), said=said)

        if self.left_s - _RESERVE_S < step.expected_s:
            return ended(Ended.NO_TIME, f"{self.left_s:.0f} s are left, it takes {step.expected_s:.0f} s")
        environment = environment_of(lane, os.environ)
        lacks = await self.checks.lacking(
            step.needs,
            environment=environment,
            gpus=len(lane.gpus),
            predictors=self.place.predictors(),
        )
        if lacks is not None:
            return ended(Ended.LACKS, lacks)
        left_s = self.left_s - _RESERVE_S
        limit_s = left_s if step.fills_s and math.isinf(step.most_s) else min(left_s, step.limit_s)
        log = self.place.log(step.name)
        gpus = lane.name.replace(" ", "")
        command = self.place.command(step, gpus, min(limit_s, left_s) - _RESERVE_S)
        process = await StepProcess.start(command, environment=environment, log=log, folder=self.place.folder)
        self.now[lane.name] = Now(step=step, began_s=time.monotonic(), limit_s=limit_s)
        try:
            code = await process.code(limit_s)
        except asyncio.CancelledError:
            self.records.add(ended(Ended.STOPPED, last_line(log)))
            raise
        finally:
            del self.now[lane.name]
            await process.end()
        if code is None:
            return ended(Ended.KILLED, last_line(log))
        return ended({0: Ended.DONE, MISSED: Ended.MISSED}.get(code, Ended.FAILED), last_line(log))

    async def tell(self) -> None:
        """One line a second while a step runs, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            if not self.now:
                continue
            parts = [
                f"{lane}: {now.step.name} {time.monotonic() - now.began_s:.0f} of {now.limit_s:.0f} s: "
                f"{last_line(self.place.log(now.step.name))[:90]}"
                for lane, now in sorted(self.now.items())
            ]
            self.say(" | ".join(parts))

    def say(self, text: str) -> None:
        """With the second of the session."""
        print(f"[{time.monotonic() - self.began_s:4.0f} s] {text}", flush=True)
