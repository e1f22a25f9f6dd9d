"""Limits of a tenant or a key: their names, what they may be, and what becomes of a request above one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pdmuxd.controlplane.tenants.tenant_fields import (
    MAX_IN_FLIGHT_RANGE,
    MAX_WAIT_RANGE_MS,
    in_words,
    names_in_words,
)
from pdmuxd.engine.core.errors import InvalidValueError

LimitName = Literal[
    "concurrency",
    "requests_per_min",
    "input_tokens_per_min",
    "output_tokens_per_min",
    "tokens_per_day",
    "tokens_per_month",
    "spend_cents_per_day",
    "spend_cents_per_month",
    "max_output_tokens",
    "max_wait_ms",
]
LimitAction = Literal["refuse", "wait"]
DEFAULT_ACTION: LimitAction = "refuse"
SPEND: frozenset[LimitName] = frozenset(("spend_cents_per_day", "spend_cents_per_month"))
"""Budgets of money, in hundredths of the price list's currency."""
BOUNDS: frozenset[LimitName] = frozenset(("max_output_tokens", "max_wait_ms"))
"""Limits of each request by itself: nothing is counted against them."""

NAMES: tuple[LimitName, ...] = get_args(LimitName)
ACTIONS_ALLOWED = names_in_words(LimitAction)
_TOKENS = (1, 10**15)
_CENTS = (1, 10**9)
RANGES: Mapping[LimitName, tuple[int, int]] = {
    "concurrency": MAX_IN_FLIGHT_RANGE,
    "requests_per_min": (1, 10**9),
    "input_tokens_per_min": _TOKENS,
    "output_tokens_per_min": _TOKENS,
    "tokens_per_day": _TOKENS,
    "tokens_per_month": _TOKENS,
    "spend_cents_per_day": _CENTS,
    "spend_cents_per_month": _CENTS,
    "max_output_tokens": (1, 10**9),
    "max_wait_ms": MAX_WAIT_RANGE_MS,
}
WHAT: Mapping[LimitName, str] = {
    "concurrency": "Answers in flight at once, a request counting prompts times `n`.",
    "requests_per_min": "Requests in any 60 seconds.",
    "input_tokens_per_min": "Prompt tokens in any 60 seconds.",
    "output_tokens_per_min": "Tokens that were produced, in any 60 seconds.",
    "tokens_per_day": "Prompt and output tokens from midnight to midnight, UTC.",
    "tokens_per_month": "Prompt and output tokens of a calendar month, UTC.",
    "spend_cents_per_day": "What tokens cost from midnight to midnight, UTC, in hundredths of the currency.",
    "spend_cents_per_month": "What tokens cost in a calendar month, UTC, in hundredths of the currency.",
    "max_output_tokens": "Tokens of one answer: given to a request that names no maximum; more is refused.",
    "max_wait_ms": "The longest wait, of a key: at its limits, and until a streamed answer begins.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit. `value` is in the unit that its name tells.

    `refuse` answers a request above it with 429 at once; with `wait` it waits for its turn at the gateway, as
    long as its tenant lets requests wait (`max_wait_ms`).
    """

    name: LimitName
    value: int
    action: LimitAction = DEFAULT_ACTION


def check_limit(limit: Limit, *, of_key: bool) -> Limit:
    """Raises: InvalidValueError naming the limit and what it may be."""
    if limit.name not in NAMES:
        raise InvalidValueError("name", f"{limit.name!r:.60} is no limit; allowed are {', '.join(NAMES)}")
    low, high = RANGES[limit.name]
    if not low <= limit.value <= high:
        allowed = in_words((low, high))
        raise InvalidValueError(limit.name, f"{limit.name} is {limit.value}; allowed are {allowed}")
    if limit.action not in get_args(LimitAction):
        raise InvalidValueError(
            limit.name, f"the action of {limit.name} is {limit.action!r:.40}; allowed are {ACTIONS_ALLOWED}"
        )
    if limit.name == "max_wait_ms" and not of_key:
        raise InvalidValueError("max_wait_ms", "max_wait_ms of a tenant is a field of the tenant itself")
    if limit.name in BOUNDS and limit.action == "wait":
        raise InvalidValueError(limit.name, f"the action of {limit.name} is 'wait'; allowed is refuse")
    return limit
