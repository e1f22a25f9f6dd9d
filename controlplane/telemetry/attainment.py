"""How well targets are met, for one tenant or for all: latencies, attainment, error budget and its burn.

TTFT is judged by request, TBT by gap, availability by request that was asked, whole answers by request where
they have a target: all these shares must reach the attainment that was promised. The budget is
the share that may miss, 1 minus that attainment. Burn is the share that did miss over the budget: at 1 the
budget is just used up, at 2 twice as fast. An idle hour leaves the whole budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pdmuxd.controlplane.events.messages import Spread, Verdict
from pdmuxd.controlplane.events.outcomes import ASKED, UNSERVED, Outcome
from pdmuxd.controlplane.history.reading import Judged
from pdmuxd.controlplane.telemetry.counts import CountWindow
from pdmuxd.controlplane.telemetry.histogram import SlidingHistogram
from pdmuxd.controlplane.telemetry.judged import JudgedRequest, ttft_missed
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts

WINDOW_S = 60.0
WINDOWS_S = (60.0, 300.0, 3600.0, 86_400.0, 2_592_000.0)
MINUTE_S, FIVE_MINUTES_S, HOUR_S, DAY_S, MONTH_S = WINDOWS_S

HOUR_SLOT_S, DAY_SLOT_S, MONTH_SLOT_S = 30.0, 900.0, 21_600.0
"""How precise the longer windows are."""
_TTFT, _TTFT_MISSED, _TBT, _GAPS, _GAPS_MISSED = range(5)
_ENGINE_TTFT, _ENGINE_TTFT_MISSED, _ENGINE_GAPS, _ENGINE_GAPS_MISSED = range(5, 9)
_ASKED, _UNSERVED, _LIMITED = range(9, 12)
_E2E, _E2E_MISSED = range(12, 14)
_JUDGED = 14
"""Columns of the longer windows, which are for attainment alone."""
_ENDED, _GOOD, _GOOD_BY_STEPS, _GOOD_FORGIVEN, _OUTPUT, _REFUSED = range(14, 20)
_COLUMNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationCounts:
    """One target over one window."""

    requests: int
    """Those with a first token, with a gap, that were asked, or with a target of their whole answer."""
    judged: int
    """These requests, or their gaps."""
    missed: int
    """Of what was judged."""
    engine_judged: int = 0
    engine_missed: int = 0
    """The same as the engine made them; the others are as clients saw them, where the gateway could."""
    limited: int = 0
    """Of what missed availability, refused by the tenant's own limits."""

    @property
    def attainment_ratio(self) -> float | None:
        """The share that met it; None if there was nothing to judge."""
        return None if not self.judged else 1.0 - self.missed / self.judged

    @property
    def without_limited(self) -> ViolationCounts:
        """The windows as if requests over their tenant's own limits had not been sent."""
        if not self.limited:
            return self
        return replace(
            self,
            requests=self.requests - self.limited,
            judged=self.judged - self.limited,
            missed=self.missed - self.limited,
            limited=0,
        )

    def burn(self, target_ratio: float) -> float | None:
        """How many times too fast the error budget is used; None if there was nothing to judge."""
        return None if not self.judged else self.missed / self.judged / (1.0 - target_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCounts:
    """How each target was kept over one window."""

    ttft: ViolationCounts
    tbt: ViolationCounts
    availability: ViolationCounts
    """Requests that were asked, and those of them that were not served."""
    e2e: ViolationCounts
    """Requests whose whole answers have a target."""

    def __iter__(self) -> Iterator[ViolationCounts]:
        return iter((self.ttft, self.tbt, self.availability, self.e2e))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events per second over the last minute."""

    requests_per_s: float
    goodput_per_s: float
    """As clients saw it."""
    good_by_steps_per_s: float
    good_forgiven_per_s: float
    output_tokens_per_s: float
    refused_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodCounts:
    """Requests that ended within the last hour, of this run of the daemon, and the good ones of them."""

    ended: int = 0
    delivered: int = 0
    """As clients saw them."""
    by_steps: int = 0
    """As the engine made them."""
    forgiven: int = 0
    """As clients saw them, with one late gap of each forgiven."""


def verdict_of(counts: Iterable[ViolationCounts], target_ratio: float) -> Verdict:
    """Whether all targets are kept, by what was counted of them."""
    known = [ratio for ratio in (each.attainment_ratio for each in counts) if ratio is not None]
    if not known:
        return "no_traffic"
    return "met" if min(known) >= target_ratio else "missed"


def budget_left(hour: Iterable[ViolationCounts], target_ratio: float) -> float:
    """What is left of an error budget, of the target that has least; may be negative."""
    return round(1.0 - max(each.burn(target_ratio) or 0.0 for each in hour), 6)


class Attainment:
    """What is counted of one tenant's requests, or of everyone's. `now_s` must not go back."""

    def __init__(self) -> None:
        self.requests = 0
        self.refused = 0
        """Since the daemon started, as `requests`."""
        self.outcomes: Counter[Outcome] = Counter()
        """How requests ended, since the daemon started."""
        self.last_s = 0.0
        self._ttft = SlidingHistogram()
        self._tbt_gaps = SlidingHistogram()
        self._tbt_worst = SlidingHistogram()
        self._minute = CountWindow(_COLUMNS, slots=12, slot_s=5.0)
        self._hour = CountWindow(_COLUMNS, slots=120, slot_s=HOUR_SLOT_S)
        self._day = CountWindow(_JUDGED, slots=96, slot_s=DAY_SLOT_S)
        self._month = CountWindow(_JUDGED, slots=120, slot_s=MONTH_SLOT_S)

    def on_request(self, judged: JudgedRequest, now_s: float) -> None:
        self.requests += 1
        self.last_s = now_s
        self._count(_ENDED, 1, now_s)
        self._count(_OUTPUT, judged.record.output_tokens, now_s)
        if judged.ttft_s is not None:
            self._ttft.add(judged.ttft_s, now_s)
        if judged.ttft_missed is not None:
            self._count_judged(_TTFT, 1, now_s)
            self._count_judged(_TTFT_MISSED, int(judged.ttft_missed), now_s)
        if judged.gap_max_s is not None:
            self._tbt_gaps.add_counts(judged.gap_counts, now_s)
            self._tbt_worst.add(judged.gap_max_s, now_s)
            self._count_judged(_TBT, 1, now_s)
            self._count_judged(_GAPS, judged.gaps, now_s)
            self._count_judged(_GAPS_MISSED, judged.gaps_missed, now_s)
        if judged.e2e_missed is not None:
            self._count_judged(_E2E, 1, now_s)
            self._count_judged(_E2E_MISSED, int(judged.e2e_missed), now_s)
        record = judged.record
        if (missed := ttft_missed(record)) is not None:
            self._count_judged(_ENGINE_TTFT, 1, now_s)
            self._count_judged(_ENGINE_TTFT_MISSED, int(missed), now_s)
        self._count_judged(_ENGINE_GAPS, record.tbt_gaps, now_s)
        self._count_judged(_ENGINE_GAPS_MISSED, record.tbt_gaps - record.tbt_gaps_met, now_s)
        self._count(_GOOD, int(judged.good), now_s)
        self._count(_GOOD_BY_STEPS, int(judged.good_by_steps), now_s)
        self._count(_GOOD_FORGIVEN, int(judged.good_forgiven), now_s)

    def on_outcome(self, outcome: Outcome, now_s: float) -> None:
        """A request that the tenant sent is over; told once of each."""
        self.outcomes[outcome] += 1
        self.last_s = now_s
        if outcome in ASKED:
            self._count_judged(_ASKED, 1, now_s)
        if outcome in UNSERVED:
            self._count_judged(_UNSERVED, 1, now_s)
            self._count_judged(_LIMITED, int(outcome is Outcome.LIMITED), now_s)

    def restore(self, past: Judged, now_s: float, window_s: float) -> None:
        """Count what was judged before the daemon started, for one of WINDOWS_S."""
        self.last_s = max(self.last_s, min(now_s, past.at_s))
        window = self._window(window_s)
        for column, count in enumerate(past.counts):
            window.restore(column, count, at_s=past.at_s, now_s=now_s)

    def on_refused(self, now_s: float) -> None:
        """The gateway refused a request for want of a place."""
        self.refused += 1
        self.last_s = now_s
        self._count(_REFUSED, 1, now_s)

    def ttft(self, now_s: float) -> Spread:
        """Times to first token, of the last minute."""
        return self._ttft.spread(now_s)

    def tbt_gaps(self, now_s: float) -> Spread:
        """Gaps between the tokens of the requests that ended in the last minute."""
        return self._tbt_gaps.spread(now_s)

    def tbt_worst(self, now_s: float) -> Spread:
        """Each request's longest gap, of the last minute."""
        return self._tbt_worst.spread(now_s)

    def rates(self, now_s: float) -> Rates:
        """Events per second."""
        sums = self._minute.sums(now_s)
        return Rates(
            requests_per_s=round(sums[_ENDED] / WINDOW_S, 4),
            goodput_per_s=round(sums[_GOOD] / WINDOW_S, 4),
            good_by_steps_per_s=round(sums[_GOOD_BY_STEPS] / WINDOW_S, 4),
            good_forgiven_per_s=round(sums[_GOOD_FORGIVEN] / WINDOW_S, 4),
            output_tokens_per_s=round(sums[_OUTPUT] / WINDOW_S, 2),
            refused_per_s=round(sums[_REFUSED] / WINDOW_S, 4),
        )

    def good(self, now_s: float) -> GoodCounts:
        """How many requests of the last hour were good, in each sense."""
        sums = self._hour.sums(now_s)
        return GoodCounts(
            ended=sums[_ENDED],
            delivered=sums[_GOOD],
            by_steps=sums[_GOOD_BY_STEPS],
            forgiven=sums[_GOOD_FORGIVEN],
        )

    def violations(self, now_s: float, window_s: float, waiting: OpenCounts = NOTHING_OPEN) -> TargetCounts:
        """Violations over one of WINDOWS_S, the TTFT of requests that are open included."""
        counts = self._window(window_s).sums(now_s, window_s)
        judged = counts[_TTFT] + waiting.judged
        return TargetCounts(
            ttft=ViolationCounts(
                requests=judged,
                judged=judged,
                missed=counts[_TTFT_MISSED] + waiting.missed,
                engine_judged=counts[_ENGINE_TTFT],
                engine_missed=counts[_ENGINE_TTFT_MISSED],
            ),
            tbt=ViolationCounts(
                requests=counts[_TBT],
                judged=counts[_GAPS],
                missed=counts[_GAPS_MISSED],
                engine_judged=counts[_ENGINE_GAPS],
                engine_missed=counts[_ENGINE_GAPS_MISSED],
            ),
            availability=ViolationCounts(
                requests=counts[_ASKED],
                judged=counts[_ASKED],
                missed=counts[_UNSERVED],
                limited=counts[_LIMITED],
            ),
            e2e=ViolationCounts(requests=counts[_E2E], judged=counts[_E2E], missed=counts[_E2E_MISSED]),
        )

    def verdict(self, now_s: float, target_ratio: float, waiting: OpenCounts = NOTHING_OPEN) -> Verdict:
        """Whether the targets are kept: over the last five minutes, with what is late now."""
        return verdict_of(self.violations(now_s, FIVE_MINUTES_S, waiting), target_ratio)

    def budget_left_ratio(
        self, now_s: float, target_ratio: float, waiting: OpenCounts = NOTHING_OPEN
    ) -> float:
        """What is left of the last hour's error budget, of the target that has least; may be negative."""
        return budget_left(self.violations(now_s, HOUR_S, waiting), target_ratio)

    def _window(self, window_s: float) -> CountWindow:
        if window_s <= WINDOW_S:
            return self._minute
        return self._hour if window_s <= HOUR_S else self._day if window_s <= DAY_S else self._month

    def _count(self, column: int, count: int, now_s: float) -> None:
        self._minute.add(column, count, now_s)
        self._hour.add(column, count, now_s)

    def _count_judged(self, column: int, count: int, now_s: float) -> None:
        self._count(column, count, now_s)
        self._day.add(column, count, now_s)
        self._month.add(column, count, now_s)
