"""What operators can set of a tenant, beside its targets: names, ranges, defaults, checks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, get_args

from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.engine.core.slo import TENANT_NAME, LateAction, PriorityClass

NAME_MAX = 63
NAME = re.compile(TENANT_NAME)
NAME_ALLOWED = "1 to 63 characters of a-z, 0-9 and -, the first not a -"

MAX_IN_FLIGHT_RANGE = (1, 65536)
DEFAULT_MAX_IN_FLIGHT = 256
"""A quarter of the gateway's own default limit, so that no tenant takes all of it."""
WEIGHT_RANGE = (0.01, 100.0)
"""Wide enough for any share that is meant, narrow enough that a share never rounds to nothing."""
MAX_WAIT_RANGE_MS = (1, 3_600_000)
TBT_COST_RANGE = (0.0, 1.0)
"""A share of the prefill time; at 1 it never caps."""

MODEL_ALIAS = r"[A-Za-z0-9._:/@-]{1,128}\*?"
MAX_MODEL_ALIASES = 16
"""Each of a request's model names is compared with all of them."""
MODEL_ALIASES_ALLOWED = (
    f"up to {MAX_MODEL_ALIASES} names of 1 to 128 characters of A-Z, a-z, 0-9, ., _, :, /, @ and -, each "
    "with * at its end or without"
)

CACHE_GROUP_ALLOWED = f"null, or {NAME_ALLOWED}"


class TenantChanges(TypedDict, total=False):
    """What an update may hold; what is left out stays. None in a field that cannot be null: it stays too."""

    enabled: bool | None
    max_in_flight: int | None
    cache_group: str | None
    priority_class: PriorityClass | None
    weight: float | None
    max_wait_ms: int | None
    late_action: LateAction | None
    count_cached_tokens: bool | None
    max_tbt_cost_ratio: float | None
    model_aliases: Sequence[str] | None


NULLABLE = frozenset({"cache_group", "max_wait_ms", "max_tbt_cost_ratio"})


def in_words(allowed: tuple[float, float]) -> str:
    """A range for an error: 1 to 65536."""
    low, high = allowed
    return f"{low:.15g} to {high:.15g}"


def names_in_words(names: object) -> str:
    """The values of a Literal for an error: interactive, standard and batch."""
    *most, last = get_args(names)
    return f"{', '.join(most)} and {last}"


ALLOWED: Mapping[str, str] = {
    "name": NAME_ALLOWED,
    "enabled": "true and false",
    "max_in_flight": in_words(MAX_IN_FLIGHT_RANGE),
    "cache_group": CACHE_GROUP_ALLOWED,
    "priority_class": names_in_words(PriorityClass),
    "weight": in_words(WEIGHT_RANGE),
    "max_wait_ms": f"null, or {in_words(MAX_WAIT_RANGE_MS)}",
    "late_action": names_in_words(LateAction),
    "count_cached_tokens": "true and false",
    "max_tbt_cost_ratio": f"null, or {in_words(TBT_COST_RANGE)}",
    "model_aliases": MODEL_ALIASES_ALLOWED,
}


def check(field: str, value: object) -> None:
    """Raise InvalidValueError naming the field and what it may be, unless it may be `value`."""
    if not _IS_ALLOWED[field](value):
        shown = f"{value:.15g}" if isinstance(value, float) else repr(value)[:80]
        raise InvalidValueError(field, f"{field} is {shown}; allowed are {ALLOWED[field]}")


def _within(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: math.isfinite(value) and low <= value <= high


_IS_ALLOWED: Mapping[str, Callable[[Any], bool]] = {
    "name": lambda value: NAME.fullmatch(value) is not None,
    "enabled": lambda value: isinstance(value, bool),
    "max_in_flight": _within(*MAX_IN_FLIGHT_RANGE),
    "cache_group": lambda value: value is None or NAME.fullmatch(value) is not None,
    "priority_class": lambda value: value in get_args(PriorityClass),
    "weight": _within(*WEIGHT_RANGE),
    "max_wait_ms": lambda value: value is None or _within(*MAX_WAIT_RANGE_MS)(value),
    "late_action": lambda value: value in get_args(LateAction),
    "count_cached_tokens": lambda value: isinstance(value, bool),
    "max_tbt_cost_ratio": lambda value: value is None or _within(*TBT_COST_RANGE)(value),
    "model_aliases": lambda value: (
        len(value) <= MAX_MODEL_ALIASES and all(re.fullmatch(MODEL_ALIAS, each) is not None for each in value)
    ),
}
