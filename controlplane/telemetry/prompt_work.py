"""Finds whose prompts kept the queue: prompt tokens by tenant, in the last minute and in the five before it.

What waits counts as its tenant's prompts usually are. A queue stands behind the tenant whose work grew most,
if that has a good part of all work; else it stands behind nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pdmuxd.controlplane.telemetry.counts import CountWindow
from pdmuxd.controlplane.telemetry.waiting import OpenCounts

MUCH = 0.3
"""A share of all prompt tokens from which on a tenant is named."""
MINUTE_S, BEFORE_S = 60.0, 300.0
ANSWER_HOLDS_S = 1.0
LOOKED_AT_ONCE = 50
"""Tenants, which take some 10 us each."""
_SLOT_S = 10.0
_MOST_TENANTS = 1000
"""Of more, those without prompts in six minutes are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The tenant whose prompts stood before others'."""

    tenant: str
    share_ratio: float
    """Of the prompt tokens that were prefilled in the last minute or wait now."""
    grown: float | None
    """How many times as many as in a minute of the five before; None if it had next to none then."""


class PromptWork:
    """Written and asked in one thread. `now_s` must not go back."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._tenants: dict[str, CountWindow] = {}
        self._answered: tuple[float, Ahead | None] | None = None
        """The last answer, and when: many incidents ask at one instant, of up to a thousand tenants."""

    def add(self, tenant: str, tokens: int, now_s: float) -> None:
        """A prompt of so many tokens that were not cached has been prefilled."""
        self._began_s = now_s if self._began_s is None else self._began_s
        window = self._tenants.get(tenant)
        if window is None:
            if len(self._tenants) >= _MOST_TENANTS:
                self._forget(now_s)
            slots = round((MINUTE_S + BEFORE_S) / _SLOT_S)
            window = self._tenants[tenant] = CountWindow(2, slots=slots, slot_s=_SLOT_S)
        window.add(0, tokens, now_s)
        window.add(1, 1, now_s)

    def drop(self, tenant: str) -> None:
        """The tenant is gone: nobody waits behind it any more."""
        self._tenants.pop(tenant, None)
        if (
            self._answered is not None
            and self._answered[1] is not None
            and self._answered[1].tenant == tenant
        ):
            self._answered = None

    def ahead(self, waiting: Mapping[str, OpenCounts], now_s: float) -> Ahead | None:
        """The tenant that fills the queue; None if nobody's prompts are a good part of it, or none are known.

        Whoever has looked less than a second ago is told the same.
        """
        if self._answered is None or now_s - self._answered[0] >= ANSWER_HOLDS_S:
            for _ in self.look(waiting, now_s):
                pass
        return None if self._answered is None else self._answered[1]

    def look(self, waiting: Mapping[str, OpenCounts], now_s: float) -> Iterator[None]:
        """See who fills the queue, at a few tenants with each step."""
        now, before = dict[str, float](), dict[str, float]()
        for number, (name, window) in enumerate(tuple(self._tenants.items()), start=1):
            if number % LOOKED_AT_ONCE == 0:
                yield
            lately, (tokens, requests) = window.sums(now_s, MINUTE_S)[0], window.sums(now_s)
            waits = waiting[name].waiting * tokens / requests if name in waiting and requests else 0.0
            now[name] = lately + waits
            before[name] = (tokens - lately) * MINUTE_S / BEFORE_S
        self._answered = now_s, self._first(now, before, now_s)

    def _first(self, now: Mapping[str, float], before: Mapping[str, float], now_s: float) -> Ahead | None:
        total = sum(now.values())
        named = [name for name, work in now.items() if total and work >= MUCH * total]
        if not named:
            return None
        known_s = 0.0 if self._began_s is None else now_s - self._began_s - MINUTE_S
        if known_s < MINUTE_S:  # nothing to compare with
            first = max(named, key=lambda name: (now[name], name))
            return Ahead(tenant=first, share_ratio=now[first] / total, grown=None)
        first = max(named, key=lambda name: (now[name] - before[name], name))
        grown = now[first] / before[first] if before[first] > 0.01 * now[first] else None
        return Ahead(tenant=first, share_ratio=now[first] / total, grown=grown)

    def _forget(self, now_s: float) -> None:
        for name in [name for name, window in self._tenants.items() if not any(window.sums(now_s))]:
            del self._tenants[name]
