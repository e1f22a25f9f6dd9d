"""The columns of the history: what is counted of each tenant, and of the node, in each period."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from operator import add

Row = list[int]
"""One value per column."""


class Column(IntEnum):
    """Sums first, then the largest values. `TTFT` and `GAPS` are as clients saw them, `ENGINE_…` as made."""

    ARRIVALS = 0
    ENDED = 1
    GOOD = 2
    TTFT_JUDGED = 3
    TTFT_MISSED = 4
    TBT_REQUESTS = 5
    """With at least one gap."""
    GAPS = 6
    GAPS_MISSED = 7
    ENGINE_TTFT_JUDGED = 8
    ENGINE_TTFT_MISSED = 9
    ENGINE_GAPS = 10
    ENGINE_GAPS_MISSED = 11
    PROMPT_TOKENS = 12
    CACHED_TOKENS = 13
    """Of these, found in the prefix cache: the rest was prefilled."""
    OUTPUT_TOKENS = 14
    REFUSED = 15
    PREFILL_SM_MS = 16
    """SM time: milliseconds times SMs."""
    DECODE_SM_MS = 17
    TOTAL_SM_MS = 18
    """That there was, busy or not; of the node only."""
    ASKED = 19
    """Requests that are over, but for those that clients gave up or that were not valid."""
    UNSERVED = 20
    """Of these: refused, expired, lost or failed."""
    LIMITED = 21
    """Of these, refused by the tenant's own limits."""
    E2E_JUDGED = 22
    """Requests whose whole answers had a target."""
    E2E_MISSED = 23
    WORST_WAIT_MS = 24
    WORST_TTFT_MS = 25
    WORST_GAP_MS = 26
    WAITING = 27
    LATE = 28
    IN_FLIGHT = 29


SUMS = tuple(Column)[: Column.WORST_WAIT_MS]
MAXIMA = tuple(Column)[Column.WORST_WAIT_MS :]
NAMES = tuple(column.name.lower() for column in Column)
_FIRST_MAXIMUM = int(Column.WORST_WAIT_MS)


def empty() -> Row:
    """Nothing happened."""
    return [0] * len(Column)


def merge(into: Row, other: Sequence[int]) -> None:
    """Add sums and take the larger of maxima: the row of both periods."""
    into[:_FIRST_MAXIMUM] = map(add, into[:_FIRST_MAXIMUM], other)
    into[_FIRST_MAXIMUM:] = map(max, into[_FIRST_MAXIMUM:], other[_FIRST_MAXIMUM:])
