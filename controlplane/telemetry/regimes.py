"""Knows in which times of the last minutes the same targets held: what was measured under others says
little."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdmuxd.engine.core.slo import Slo

Edit = tuple[str, Slo, Slo]
"""A tenant, and its targets before and after."""
KEPT = 64
"""Changes; what was before the oldest is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Times in which all targets were the same, the newest first."""

    spans: tuple[tuple[float, float], ...]
    """(begin, end), Unix time."""
    differs: Mapping[str, Slo]
    """Tenants whose targets were others than now, and what they were."""

    def has(self, at_s: float) -> bool:
        return any(begin <= at_s <= end for begin, end in self.spans)


class Regimes:
    """Written in one thread; `last` may be called in any."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self._changes: deque[tuple[float, tuple[Edit, ...]]] = deque()

    def changed(self, edits: Iterable[Edit], now_s: float) -> None:
        if found := tuple(edits):
            self._changes.append((now_s, found))
            while len(self._changes) > KEPT:
                self._since_s, _ = self._changes.popleft()

    def began(self, now_s: float) -> None:
        """Another engine, policy or profile is in force: what was measured before is not of it."""
        self._changes.clear()
        self._since_s = now_s

    def last(self, now_s: float) -> list[Regime]:
        """All that are known; the first is the one that holds."""
        spans: dict[frozenset[tuple[str, Slo]], list[tuple[float, float]]] = {}
        differs: dict[str, Slo] = {}
        is_now: dict[str, Slo] = {}
        end_s = now_s
        for at_s, edits in reversed(tuple(self._changes)):
            spans.setdefault(frozenset(differs.items()), []).append((at_s, end_s))
            for tenant, before, after in edits:
                if is_now.setdefault(tenant, after) == before:
                    differs.pop(tenant, None)
                else:
                    differs[tenant] = before
            end_s = at_s
        spans.setdefault(frozenset(differs.items()), []).append((self._since_s, end_s))
        return [Regime(spans=tuple(each), differs=dict(which)) for which, each in spans.items()]
