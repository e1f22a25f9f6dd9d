"""How many tokens an answer has, by tenant: what was decoded lately over the requests that began lately.

Answers that have not ended count with what they have by now, so that none has to end to be counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdmuxd.engine.core.types import WaitingRequest

ANSWER_MEMORY_S = 20.0
"""What was decoded and begun so long ago counts half."""
_REBASE_S = 100 * ANSWER_MEMORY_S
"""Weights grow with time in place of all counts falling; before they grow too large the counts are scaled,
and tenants of which nothing is left are forgotten."""


@dataclass(slots=True)
class _Counts:
    decoded: float = 0.0
    begun: float = 0.0

    @property
    def tokens(self) -> float:
        return self.decoded / self.begun if self.begun else 0.0


class AnswerLengths:
    """Counted at each launch, whatever the policy."""

    def __init__(self) -> None:
        self._base_s = 0.0
        self._all = _Counts()
        self._of: dict[str, _Counts] = {}

    def begun(self, entries: Iterable[WaitingRequest], now_s: float) -> None:
        """The prefill of these begins."""
        weight = self._weight(now_s)
        for entry in entries:
            self._all.begun += weight
            self._counts(entry.tenant).begun += weight

    def decoded(self, tokens: int, slots_held: Mapping[str, int], now_s: float) -> None:
        """A step of so many decoding requests was launched; a tenant has its share of the slots of them."""
        held = sum(slots_held.values())
        if not tokens or not held:
            return
        weight = self._weight(now_s) * tokens
        self._all.decoded += weight
        for tenant, slots in slots_held.items():
            self._counts(tenant).decoded += weight * slots / held

    def usual(self, tenants: Iterable[str]) -> tuple[tuple[str, float], ...]:
        """Tokens of an answer, by tenant; of one of which nothing is known, as all have them."""
        found = ((tenant, self._of.get(tenant)) for tenant in tenants)
        return tuple((tenant, (self._all if counts is None else counts).tokens) for tenant, counts in found)

    def of(self, tenant: str) -> float:
        """The same of one."""
        return self.usual((tenant,))[0][1]

    def _counts(self, tenant: str) -> _Counts:
        return self._of.setdefault(tenant, _Counts())

    def _weight(self, now_s: float) -> float:
        if now_s - self._base_s > _REBASE_S:
            left = 0.5 ** ((now_s - self._base_s) / ANSWER_MEMORY_S)
            for counts in (self._all, *self._of.values()):
                counts.decoded, counts.begun = counts.decoded * left, counts.begun * left
            self._of = {tenant: counts for tenant, counts in self._of.items() if counts.decoded > left}
            self._base_s = now_s
        return float(2.0 ** ((now_s - self._base_s) / ANSWER_MEMORY_S))
