"""What other nodes on the same database have judged: of all rows, what this node has not written itself."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, sub

from pdmuxd.controlplane.history.batch import NODE, Batch, Series
from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.history.periods import MINUTE_S
from pdmuxd.controlplane.history.reading import JUDGED, Judged

LOOK_BACK_S = 600
"""What another node stores later than this is not seen before a restart."""
_COLUMNS = tuple(Column[name.upper()] for name in JUDGED)
_NOTHING = (0,) * len(_COLUMNS)

_Key = tuple[Series, int]


class OtherNodes:
    """Told what is written and what is read, one after the other; minutes that are over are forgotten."""

    def __init__(self) -> None:
        self._accounted: dict[_Key, tuple[int, ...]] = {}
        """By series and minute: written here, or counted here already."""

    def wrote(self, batch: Batch) -> None:
        """This node has stored these."""
        for (series, minute), row in batch.counts.items():
            if series.tenant != NODE:
                self._account((series, minute), tuple(row[column] for column in _COLUMNS))

    def known(self, found: Iterable[Judged]) -> None:
        """Note that these rows were counted at the start."""
        for each in found:
            self._accounted[each.series, each.at_s] = each.counts

    def new(self, found: Iterable[Judged], now_s: float) -> list[Judged]:
        """What of these rows by the minute is of other nodes, and was not told yet."""
        told: list[Judged] = []
        for each in found:
            key = each.series, each.at_s
            counts = tuple(map(sub, each.counts, self._accounted.get(key, _NOTHING)))
            if any(count > 0 for count in counts):
                counts = tuple(max(0, count) for count in counts)
                self._account(key, counts)
                told.append(Judged(series=each.series, at_s=each.at_s, counts=counts))
        oldest = now_s - LOOK_BACK_S - 2 * MINUTE_S
        for key in [key for key in self._accounted if key[1] < oldest]:
            del self._accounted[key]
        return told

    def _account(self, key: _Key, counts: tuple[int, ...]) -> None:
        self._accounted[key] = tuple(map(add, self._accounted.get(key, _NOTHING), counts))
