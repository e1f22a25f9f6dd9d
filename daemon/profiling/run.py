"""A campaign from the first question to the profile, within a budget, and safe to interrupt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pdmuxd.daemon.profiling.engine import MeasuringEngine
from pdmuxd.daemon.profiling.journal import NOTHING, Journal
from pdmuxd.engine.core.errors import EngineError, ProfileError
from pdmuxd.engine.link.measuring import Measured
from pdmuxd.engine.profiling.assemble import assemble
from pdmuxd.engine.profiling.campaign import Campaign, Progress, Step
from pdmuxd.engine.profiling.document import MeasuredProfile
from pdmuxd.engine.profiling.measurement import Point, Sample, Target

MAX_REFUSED = 20
"""Points that an engine may refuse in a row: a few may be too large for it, so many are a fault."""
WARM_UP_TOKENS = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A profile, and why measuring ended early if it did."""

    profile: MeasuredProfile
    refused: int
    """Points that the engine would not measure."""
    broken_off: str | None
    """None if the campaign ended by itself."""


@dataclass(slots=True, kw_only=True)
class _Clock:
    """What the campaign has spent.

    The clock's time, or what the device says it was busy for if that is more: an emulated device answers
    at once, and is budgeted as the one that it stands for.
    """

    earlier_s: float
    started_s: float = field(default_factory=time.monotonic)
    device_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return self.earlier_s + max(time.monotonic() - self.started_s, self.device_s)


async def run_campaign(
    engine: MeasuringEngine,
    target: Target,
    *,
    name: str,
    budget_s: float,
    stop: asyncio.Event,
    tell: Callable[[Progress, float], None],
    journal: Journal | None = None,
) -> Outcome:
    """Measure until the campaign is done, the budget is spent, `stop` is set or the engine is lost.

    The budget includes what an earlier campaign, from which `journal` goes on, has spent.
    Raises: ProfileError if what was measured makes no profile; EngineError if nothing was measured.
    """
    earlier = NOTHING if journal is None else journal.earlier
    campaign = Campaign(target, budget_s=budget_s)
    campaign.resume(earlier.samples)
    await _warm_up(engine, target)
    clock = _Clock(earlier_s=earlier.spent_s)
    number, refused, in_a_row = 0, 0, 0
    broken_off = None
    while True:
        elapsed_s = clock.elapsed_s
        tell(campaign.progress(elapsed_s), elapsed_s)
        if stop.is_set():
            broken_off = "interrupted"
            break
        step = campaign.next(elapsed_s)
        if step is None:
            break
        number += 1
        try:
            sample = await _measured(engine, step, number, campaign, clock)
        except EngineError as error:
            if not campaign.samples:
                raise
            broken_off = str(error)
            break
        if sample is None:
            refused, in_a_row = refused + 1, in_a_row + 1
            if in_a_row > MAX_REFUSED:
                raise ProfileError(f"the engine refused {in_a_row} points in a row")
            continue
        in_a_row = 0
        if journal is not None:
            journal.add(sample, clock.elapsed_s)
    profile = assemble(
        name,
        target,
        campaign.samples,
        measured_at=now_text(),
        took_s=clock.elapsed_s,
        interrupted=broken_off is not None,
    )
    return Outcome(profile=profile, refused=refused, broken_off=broken_off)


def now_text() -> str:
    """ISO 8601, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _measured(
    engine: MeasuringEngine, step: Step, number: int, campaign: Campaign, clock: _Clock
) -> Sample | None:
    """One more sample for the campaign; None if the engine refuses the point."""
    asked_s = time.monotonic()
    answer = await engine.measure(step.point.to_measure(number, step.repeats))
    busy_s = _busy_s(answer)
    clock.device_s += busy_s
    try:
        sample = Sample.of(step.point, answer)
    except ProfileError:
        return None
    campaign.add(sample, max(time.monotonic() - asked_s, busy_s))
    return sample


async def _warm_up(engine: MeasuringEngine, target: Target) -> None:
    """Run a large prefill on each size without measuring it, so that first-use costs are paid before."""
    tokens = min(WARM_UP_TOKENS, target.max_new_tokens)
    for sms in target.prefill_sizes:
        point = Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((tokens, 0),))
        await engine.measure(point.to_measure(0, repeats=0))


def _busy_s(answer: Measured) -> float:
    """Device seconds that count: the prefill's of a pair, as it lasts longer; of others only one was
    measured."""
    return max(sum(answer.prefill_s), sum(answer.decode_s))
