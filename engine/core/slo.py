"""Service-level objectives: what a tenant was promised, as the core sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pdmuxd.engine.core.errors import SloError

TENANT_NAME = "[a-z0-9][a-z0-9-]{0,62}"
"""What a tenant may be called, as a regular expression for the whole of it."""
TBT_RANGE_S = (0.001, 10.0)
TTFT_FIXED_RANGE_S = (0.001, 600.0)
TTFT_PER_1K_RANGE_S = (0.0, 600.0)
E2E_RANGE_S = (0.001, 86_400.0)
E2E_SHARE_RANGE = (0.001, 1.0)
ATTAINMENT_RANGE = (0.5, 0.9999)

PriorityClass = Literal["interactive", "standard", "batch"]
"""Whose requests go first: those of a class before those of the next; weights share within a class."""
LateAction = Literal["serve", "refuse"]
"""What is done with a request whose TTFT target cannot be met any more."""
DEFAULT_PRIORITY_CLASS: PriorityClass = "standard"
"""The middle one, so that a tenant can be put before the others, and one behind them."""
DEFAULT_LATE_ACTION: LateAction = "serve"
DEFAULT_WEIGHT = 1.0


def ttft_due_s(fixed_s: float, per_1k_s: float, new_tokens: float) -> float:
    """Seconds from arrival to the first token: a fixed part, plus one per 1,000 new tokens."""
    return fixed_s + per_1k_s * new_tokens / 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """One tenant's latency targets.

    TTFT grows with the prompt, as in MuxWise 4.1 and DRIFT 5.1: `ttft_fixed_s` plus
    `ttft_per_1k_new_tokens_s` for each 1,000 prompt tokens that are not in the prefix cache.
    TBT holds for each gap between two tokens, not for their mean.
    `e2e_s` is from a request's arrival to its last token; None: whole answers have no target.
    Raises: SloError naming the field and its range.
    """

    ttft_fixed_s: float
    ttft_per_1k_new_tokens_s: float
    tbt_s: float
    attainment_ratio: float
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        _check("ttft_fixed_s", self.ttft_fixed_s, TTFT_FIXED_RANGE_S)
        _check("ttft_per_1k_new_tokens_s", self.ttft_per_1k_new_tokens_s, TTFT_PER_1K_RANGE_S)
        _check("tbt_s", self.tbt_s, TBT_RANGE_S)
        _check("attainment_ratio", self.attainment_ratio, ATTAINMENT_RANGE)
        if self.e2e_s is not None:
            _check("e2e_s", self.e2e_s, E2E_RANGE_S)

    def ttft_target_s(self, new_tokens: int) -> float:
        """Seconds from arrival within which the first token of such a prompt is due."""
        return ttft_due_s(self.ttft_fixed_s, self.ttft_per_1k_new_tokens_s, new_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTargets:
    """Targets of one request, in place of its tenant's; None: the tenant's. Seconds."""

    ttft_s: float | None = None
    """Whatever the prompt's length."""
    tbt_s: float | None = None
    e2e_s: float | None = None
    """Of a call in a session: what is left of the session's time."""
    e2e_share: float = 1.0
    """Of that, what it is planned to take: further calls of its session are expected."""

    def applied_to(self, slo: Slo) -> Slo:
        """The tenant's objectives as they are for this request. Raises: SloError."""
        has_ttft = self.ttft_s is not None
        return Slo(
            ttft_fixed_s=slo.ttft_fixed_s if self.ttft_s is None else self.ttft_s,
            ttft_per_1k_new_tokens_s=0.0 if has_ttft else slo.ttft_per_1k_new_tokens_s,
            tbt_s=slo.tbt_s if self.tbt_s is None else self.tbt_s,
            attainment_ratio=slo.attainment_ratio,
            e2e_s=slo.e2e_s if self.e2e_s is None else self.e2e_s,
        )


def _check(field: str, value: float, allowed: tuple[float, float]) -> None:
    low, high = allowed
    if not math.isfinite(value) or not low <= value <= high:
        raise SloError(f"{field} is {value:g}; allowed are {low:g} to {high:g}")


DEFAULT_SLO = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=0.050, attainment_ratio=0.99)
"""TBT of 50 ms is the Llama-8B target of MuxWise 4.1; 1 s per 1K tokens is its TTFT rule."""
