"""How far off forecasts were: each is kept until its five minutes have passed, then beside what was measured.

The errors make the band of the next forecast. What is compared is what clients got over the five minutes, as
`/attainment` tells it; a forecast is dropped if targets, policy or engine were changed meanwhile.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pdmuxd.engine.core.quantiles import nearest_rank

HORIZON_S = 300.0
KEPT = 200
"""Errors of each target, the newest."""
ENOUGH = 10
"""With fewer the 5th and 95th percentiles are the two extremes of a handful."""
LOW, HIGH = 0.05, 0.95
_Z = 1.645
"""Of 90%, as LOW and HIGH are: what so few requests may differ by chance."""
MOST_OPEN = 20

Shares = Mapping[str, tuple[float | None, float | None]]
"""By tenant, the share of TTFT and of TBT in time; None where there was nothing to judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Where a share is likely to lie."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One share that was predicted and then measured."""

    at_s: float
    tenant: str
    target: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Less than 0: the forecast was too hopeful."""
        return self.measured - self.predicted


class ForecastRecord:
    """Written in one thread at a time; `band` may be called in any."""

    def __init__(self) -> None:
        self.has_news = asyncio.Event()
        """Set when forecasts were compared with what came; who waits for it clears it."""
        self._open: deque[tuple[float, Shares]] = deque(maxlen=MOST_OPEN)
        self._checked: dict[str, deque[Checked]] = {"ttft": deque(maxlen=KEPT), "tbt": deque(maxlen=KEPT)}

    def note(self, predicted: Shares, now_s: float) -> None:
        """Note the shares that were predicted for the next five minutes."""
        if predicted:
            self._open.append((now_s, predicted))

    def forget_open(self) -> None:
        """What was predicted does not hold any more: something was changed."""
        self._open.clear()

    def settle(self, measured: Callable[[str], tuple[float | None, float | None]], now_s: float) -> None:
        """Compare forecasts whose time has passed with what was measured of their tenants."""
        while self._open and now_s - self._open[0][0] >= HORIZON_S:
            at_s, predicted = self._open.popleft()
            for tenant, shares in predicted.items():
                for target, share, got in zip(("ttft", "tbt"), shares, measured(tenant), strict=True):
                    if share is not None and got is not None:
                        self._checked[target].append(
                            Checked(at_s=at_s, tenant=tenant, target=target, predicted=share, measured=got)
                        )
            self.has_news.set()

    def checked(self) -> list[Checked]:
        """All that are kept, the oldest first."""
        return sorted(
            (one for kept in self._checked.values() for one in tuple(kept)), key=lambda one: one.at_s
        )

    def restore(self, checked: list[Checked]) -> None:
        """Take up what was kept before this start."""
        for one in checked:
            if one.target in self._checked:
                self._checked[one.target].append(one)

    def band(self, target: str, predicted: float, requests: int) -> Band:
        """Where the share is likely to be measured: by past errors, and by what so few requests tell."""
        low, high = _by_chance(predicted, requests)
        errors = [one.error for one in tuple(self._checked[target])]
        if len(errors) >= ENOUGH:
            low = min(low, predicted + (nearest_rank(errors, LOW) or 0.0))
            high = max(high, predicted + (nearest_rank(errors, HIGH) or 0.0))
        return Band(low=max(0.0, low), high=min(1.0, high))


def least_requests(promised_ratio: float) -> int:
    """Requests of which all must have been in time to say that the promise is kept."""
    return math.ceil(2 * _Z * _Z * promised_ratio / (1.0 - promised_ratio))


def _by_chance(share: float, predicted_of: int) -> tuple[float, float]:
    """Wilson's interval; what will be measured differs by chance as well, so of half the requests."""
    if not predicted_of:
        return 0.0, 1.0
    requests = predicted_of / 2
    z2 = _Z * _Z
    middle = (share + z2 / (2 * requests)) / (1 + z2 / requests)
    half = _Z / (1 + z2 / requests) * math.sqrt(share * (1 - share) / requests + z2 / (4 * requests**2))
    # Shares come in steps of a request: what is a part of one below 1 may well be 1.
    return min(share, middle - half), max(share, middle + half + 1 / predicted_of)
