"""The engine's latest decisions, each for the read routes, and folded for the stream."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pdmuxd.controlplane.events.messages import DecisionEvent, TbtTarget, instant, ms
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.link.messages import IterationRecord

KEPT = 20_000
FOLDED_PER_TICK = 20
STRICTEST_HOLDS_S = 0.5
_SAME = DecisionEvent.model_fields.keys() & set(IterationRecord.__struct_fields__)
"""What is told as the engine said it; a new field that both have is passed on by itself."""
_SAME_TIME = {
    name: f"{name.removesuffix('_ms')}_s"
    for name in DecisionEvent.model_fields
    if name.endswith("_ms") and f"{name.removesuffix('_ms')}_s" in IterationRecord.__struct_fields__
}
"""The same of times."""
_MOVED_BY = frozenset({"prefill_ratio", "split_ratio"})
"""What is told only of decisions that it made other ones: of several alike, as one of them told it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDecision:
    """A decision with the instant it was carried out, in Unix time; `seq` counts from the daemon's start."""

    seq: int
    at_s: float
    record: IterationRecord
    tbt_capped: tuple[str, ...] = ()
    """Tenants in flight whose own TBT target was not planned for."""
    sitting_out_for: TbtTarget | None = None
    """Whose target some of the batch sit out for; None where nobody does."""

    @property
    def kind(self) -> tuple[str, str, int, bool]:
        """What is folded into one event."""
        record = self.record
        return record.mode, record.reason, record.partition_id, record.sitting_out > 0

    @property
    def predicted_s(self) -> float | None:
        """What the policy predicted for a decode step, or for the fused batch."""
        if self.record.mode == Mode.FUSED:
            return self.record.predicted_fused_s
        return self.record.predicted_decode_s

    @property
    def measured_s(self) -> float:
        """The same, measured; the whole of the step if nothing decoded."""
        record = self.record
        if record.measured_decode_s is not None:
            return record.measured_decode_s
        is_several = record.mode == Mode.SPLIT and record.decode_bs and record.decode_steps > 1
        return record.measured_step_s / record.decode_steps if is_several else record.measured_step_s


class Decisions:
    """The last 20,000. Written in one thread; `snapshot` may be called in any.

    `strictest` is the strictest TBT target of those in flight; it is asked at most twice a second.
    """

    def __init__(self, *, kept: int = KEPT, strictest: Callable[[], TbtTarget | None] = lambda: None) -> None:
        self.total = 0
        self.latest: SeenDecision | None = None
        self._seen: deque[SeenDecision] = deque(maxlen=kept)
        self._fold = _Fold()
        self._ask_strictest = strictest
        self._strictest: tuple[float, TbtTarget | None] = (-math.inf, None)

    def add(self, record: IterationRecord, at_s: float, *, tbt_capped: tuple[str, ...] = ()) -> SeenDecision:
        self.total += 1
        seen = self.latest = SeenDecision(
            seq=self.total,
            at_s=at_s,
            record=record,
            tbt_capped=tbt_capped,
            sitting_out_for=self._sitting_out_for(at_s) if record.sitting_out else None,
        )
        self._seen.append(seen)
        self._fold.add(seen)
        return seen

    def snapshot(self) -> tuple[SeenDecision, ...]:
        """All that are kept, oldest first; copied in one step, so that no thread sees half of a change."""
        return tuple(self._seen)

    def between(self, start_s: float, end_s: float, *, limit: int) -> Iterator[SeenDecision]:
        """Decisions carried out within a time, newest first; at most the newest `limit` are looked at."""
        looked_at = 0
        for seen in reversed(self._seen):
            if seen.at_s < start_s or looked_at >= limit:
                return
            if seen.at_s <= end_s:
                looked_at += 1
                yield seen

    def flush(self) -> Iterator[DecisionEvent]:
        """What came since the last call, folded."""
        yield from self._fold.flush()

    def _sitting_out_for(self, at_s: float) -> TbtTarget | None:
        asked_s, found = self._strictest
        if abs(at_s - asked_s) >= STRICTEST_HOLDS_S:
            found = self._ask_strictest()
            self._strictest = at_s, found
        return found


class _Fold:
    def __init__(self) -> None:
        self._runs: list[list[SeenDecision]] = []
        self._other = 0

    def add(self, seen: SeenDecision) -> None:
        if self._runs and self._runs[-1][0].kind == seen.kind and not self._other:
            self._runs[-1].append(seen)
        elif len(self._runs) < FOLDED_PER_TICK:
            self._runs.append([seen])
        else:
            self._other += 1

    def flush(self) -> Iterator[DecisionEvent]:
        runs, other = self._runs, self._other
        self._runs, self._other = [], 0
        for run in runs:
            yield decision_event(run, folded_other=other if run is runs[-1] else 0)


def decision_event(run: list[SeenDecision], *, folded_other: int = 0) -> DecisionEvent:
    """One event for decisions alike."""
    last, record = run[-1], run[-1].record
    slacks = [seen.record.tbt_slack_s for seen in run if seen.record.tbt_slack_s is not None]
    return DecisionEvent(
        at=instant(last.at_s),
        seq=last.seq,
        count=len(run),
        sitting_out_for=last.sitting_out_for,
        predicted_ms=ms(last.predicted_s),
        measured_ms=to_ms(last.measured_s),
        measured_max_ms=to_ms(max(seen.measured_s for seen in run)),
        slack_ms=ms(record.tbt_slack_s),
        slack_min_ms=ms(min(slacks, default=None)),
        folded_other=folded_other,
        tbt_capped=last.tbt_capped,
        **{name: getattr(record, name) for name in _SAME - _MOVED_BY},
        **{name: _told_last(run, name) for name in _MOVED_BY},
        **{name: ms(getattr(record, of)) for name, of in _SAME_TIME.items()},
    )


def _told_last(run: Sequence[SeenDecision], name: str) -> object:
    told = (getattr(seen.record, name) for seen in reversed(run))
    return next((value for value in told if value is not None), None)


def newest(
    decisions: Sequence[SeenDecision], keep: Callable[[SeenDecision], bool], limit: int
) -> list[SeenDecision]:
    """The newest `limit` that `keep` lets through, newest first, of `decisions`, oldest first."""
    return list(islice(filter(keep, reversed(decisions)), limit))
