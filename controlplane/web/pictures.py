"""Pictures of a stretch of time, as SVG: SM time, what was in time, what waited.

Prefill grows from below and decode from above, so that idle lies between them, as in the strip of SMs. Shapes
are stretched to the width of the page; words and numbers stand beside them as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.batch import Mark
from pdmuxd.controlplane.history.columns import Column, Row
from pdmuxd.controlplane.history.history import Period
from pdmuxd.tui.show import formats

HEIGHT = 100
LEAST_SHOWN_RATIO = 0.5
"""Of what was in time: a share of this and less has no bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One column of a picture, in units of `Picture.columns` by HEIGHT."""

    x: int
    at: datetime
    text: str
    prefill: float
    """Height; so are the others."""
    decode: float
    met: float | None
    waiting: float
    late: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Something that happened, at a column."""

    x: float
    at: datetime
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All bars of a period, and their sums."""

    columns: int
    start: datetime
    end: datetime
    step_s: int
    bars: Sequence[Bar]
    marks: Sequence[Marked]
    prefill_ratio: float | None
    decode_ratio: float | None
    met_ratio: float | None
    most_waiting: int

    @property
    def text(self) -> str:
        prefill, decode = formats.percent(self.prefill_ratio), formats.percent(self.decode_ratio)
        met, waited = formats.percent(self.met_ratio, 1), formats.count(self.most_waiting)
        return f"prefill {prefill}, decode {decode} of all SMs' time; {met} in time; at most {waited} waited"


def picture(period: Period, points: Sequence[tuple[int, Row]], marks: Sequence[Mark]) -> Picture:
    """Draw the node's, or a tenant's, counts of a period."""
    step_s, first_s = period.step_s, period.first_s
    columns = -(-(int(period.end_s) - first_s) // step_s)
    most = max((row[Column.WAITING] for _, row in points), default=0)
    bars = [
        _bar(int((at - first_s) // step_s), at, row, most)
        for at, row in points
        if first_s <= at < period.end_s
    ]
    total = sum(row[Column.TOTAL_SM_MS] for _, row in points)
    return Picture(
        columns=columns,
        start=instant(first_s),
        end=instant(period.end_s),
        step_s=step_s,
        bars=bars,
        marks=[
            Marked(x=(mark.at_s - first_s) / step_s, at=instant(mark.at_s), number=number, text=mark.text)
            for number, mark in enumerate(marks, 1)
        ],
        prefill_ratio=_share(sum(row[Column.PREFILL_SM_MS] for _, row in points), total),
        decode_ratio=_share(sum(row[Column.DECODE_SM_MS] for _, row in points), total),
        met_ratio=met_ratio([row for _, row in points]),
        most_waiting=most,
    )


def met_ratio(rows: Sequence[Row]) -> float | None:
    """The share in time of requests, or of gaps, whichever is less; None if nothing was judged."""
    pairs = (
        (Column.TTFT_JUDGED, Column.TTFT_MISSED),
        (Column.GAPS, Column.GAPS_MISSED),
    )
    sums = [(sum(row[judged] for row in rows), sum(row[missed] for row in rows)) for judged, missed in pairs]
    return min((1.0 - missed / judged for judged, missed in sums if judged), default=None)


def _bar(x: int, at_s: int, row: Row, most_waiting: int) -> Bar:
    total = row[Column.TOTAL_SM_MS]
    prefill = min(1.0, _share(row[Column.PREFILL_SM_MS], total) or 0.0)
    decode = min(1.0 - prefill, _share(row[Column.DECODE_SM_MS], total) or 0.0)
    met = met_ratio([row])
    above = None if met is None else max(0.0, met - LEAST_SHOWN_RATIO) / (1.0 - LEAST_SHOWN_RATIO)
    waiting, late = row[Column.WAITING], row[Column.LATE]
    return Bar(
        x=x,
        at=instant(at_s),
        text=(
            f"{instant(at_s):%H:%M:%S} UTC: prefill {formats.percent(prefill)}, "
            f"decode {formats.percent(decode)}, {formats.percent(met, 1)} in time, "
            f"{formats.count(waiting)} waiting, {formats.count(late)} late"
        ),
        prefill=round(HEIGHT * prefill, 1),
        decode=round(HEIGHT * decode, 1),
        met=None if above is None else round(HEIGHT * above, 1),
        waiting=round(HEIGHT * (_share(waiting, most_waiting) or 0.0), 1),
        late=round(HEIGHT * (_share(late, most_waiting) or 0.0), 1),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
