"""What one tenant, or one key, has used; and which of its limits a request would exceed.

Until its tokens are known a request reserves as many as it may use, so no pattern of requests gets past a
limit of tokens by more than one request. That one is let in while less than the limit is used and reserved,
however much it may use, for else a limit could not be used up; and only one at a time for each limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pdmuxd.controlplane.tenants.limit_values import BOUNDS, Limit, LimitName
from pdmuxd.controlplane.tenants.token_use import Tokens
from pdmuxd.daemon.gateway.limits.window import SlidingWindow

CONCURRENCY_RETRY_S = 1.0
"""Told as the time to retry where a request of the tenant has to end first: nobody knows when one does."""


_WINDOWS: frozenset[LimitName] = frozenset(
    ("requests_per_min", "input_tokens_per_min", "output_tokens_per_min")
)
BUDGETS: tuple[LimitName, ...] = (
    *("tokens_per_day", "tokens_per_month"),
    *("spend_cents_per_day", "spend_cents_per_month"),
)
RESERVED: frozenset[LimitName] = frozenset(("input_tokens_per_min", "output_tokens_per_min", *BUDGETS))
"""Limits of what a request uses, which is known at its end. Those of money are counted in billionths of the
currency here."""
_DAYS_KEPT, _MONTHS_KEPT = 64, 3
"""Kept longer than any budget looks back: the wall clock may be set back into the last month and forward
again."""


@dataclass(slots=True, eq=False, kw_only=True)
class Need:
    """What a request may use at most: it is reserved until that is known, and becomes less as answers end."""

    requests: int = 1
    places: int = 1
    """Answers."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    """What these tokens cost at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A limit that a request would exceed now."""

    limit: Limit
    of: str
    """`tenant NAME` or `key ID`."""
    used: int
    reserved: int
    """For requests in flight."""
    wanted: int
    """How much of the limit the request may use."""
    retry_s: float
    """Seconds until there is room for it, if nothing else is used meanwhile."""
    meter: Meter


class Meter:
    """Counts for one tenant or key; windows only for the limits that it has."""

    # There is one for each tenant and key: what few of them need is made when it is needed.
    __slots__ = (
        *("_changed", "_days", "_months", "_overdrafts", "_places", "_reserved_cost", "_reserved_input"),
        *("_reserved_output", "_turn", "_windows", "of", "readings"),
    )

    def __init__(self, of: str) -> None:
        self.of = of
        self._turn: asyncio.Lock | None = None
        self._changed: asyncio.Event | None = None
        self._places = 0
        self.readings = 0
        """Requests that are being read."""
        self._reserved_input = 0
        self._reserved_output = 0
        self._reserved_cost = 0
        self._overdrafts: dict[LimitName, Need] = {}
        """By limit, the one request in flight that may get past it: what it reserves keeps out no other."""
        self._windows: dict[LimitName, SlidingWindow] = {}
        self._days: dict[date, Tokens] = {}
        self._months: dict[date, Tokens] = {}
        """The sum of all days of a month, by the first day of the month."""

    @property
    def turn(self) -> asyncio.Lock:
        """The lock that the next one of the waiting requests holds."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    @property
    def is_waited_for(self) -> bool:
        """Whether a request waits for its turn."""
        return self._turn is not None and self._turn.locked()

    @property
    def changed(self) -> asyncio.Event:
        """Set when something was given back."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    def take(
        self, need: Need, limits: Iterable[Limit], *, count_cached: bool, now_s: float, today: date
    ) -> None:
        """Count a request that begins."""
        for limit in limits:
            if limit.name in RESERVED:
                taken = self._taken(limit.name, count_cached=count_cached, now_s=now_s, today=today)
                if taken + _wanted(limit.name, need) > limit.value:
                    self._overdrafts[limit.name] = need
        self._places += need.places
        self._reserved_input += need.input_tokens
        self._reserved_output += need.output_tokens
        self._reserved_cost += need.cost_nanos
        self.add_request(limits, now_s)

    def add_request(self, limits: Iterable[Limit], now_s: float) -> None:
        """Count a request, and begin the windows of the limits that there are."""
        for limit in limits:
            if limit.name in _WINDOWS and limit.name not in self._windows:
                self._windows[limit.name] = SlidingWindow()
        if (requests := self._windows.get("requests_per_min")) is not None:
            requests.add(1, now_s)

    def forget(self, need: Need) -> None:
        """All tokens that a request reserved were given back."""
        for name in [name for name, overdraft in self._overdrafts.items() if overdraft is need]:
            del self._overdrafts[name]
        if self._changed is not None:
            self._changed.set()

    def release(
        self, *, places: int = 0, input_tokens: int = 0, output_tokens: int = 0, cost_nanos: int = 0
    ) -> None:
        """Give back what `take` counted: the request is over, or its use is known."""
        self._places -= places
        self._reserved_input -= input_tokens
        self._reserved_output -= output_tokens
        self._reserved_cost -= cost_nanos
        if self._changed is not None:
            self._changed.set()

    def use(self, tokens: Tokens, *, count_cached: bool, now_s: float, today: date) -> None:
        """Count tokens that were really used."""
        if (inputs := self._windows.get("input_tokens_per_min")) is not None:
            inputs.add(tokens.input_tokens + (tokens.cached_tokens if count_cached else 0), now_s)
        if (outputs := self._windows.get("output_tokens_per_min")) is not None:
            outputs.add(tokens.output_tokens, now_s)
        self.load(tokens, today)

    def load(self, tokens: Tokens, day: date) -> None:
        """Count tokens of a day, for budgets only: no window of a minute knows of them."""
        self._days[day] = self._days.get(day, Tokens()).plus(tokens)
        month = day.replace(day=1)
        self._months[month] = self._months.get(month, Tokens()).plus(tokens)
        if len(self._days) > _DAYS_KEPT:
            del self._days[min(self._days.keys() - {day})]
        if len(self._months) > _MONTHS_KEPT:
            del self._months[min(self._months.keys() - {month})]

    def correct(self, tokens: Tokens, day: date) -> None:
        """Set what was used on a day in all, as all nodes have stored it."""
        missing = tokens.minus(self._days.get(day, Tokens()))
        if missing != Tokens():
            self.load(missing, day)

    def used(self, name: LimitName, *, count_cached: bool, now_s: float, today: date) -> int:
        """What counts against a limit now, what is reserved included. May be called in any thread."""
        if name in _WINDOWS:
            window = self._windows.get(name)
            return self._reserved(name) + (0 if window is None else window.peek(now_s))
        return self._reserved(name) + self.spent(name, count_cached=count_cached, now_s=now_s, today=today)

    def spent(self, name: LimitName, *, count_cached: bool, now_s: float, today: date) -> int:
        """What was really used, or is in flight; in time that does not grow with what was used."""
        match name:
            case "concurrency":
                return self._places
            case "tokens_per_day" | "spend_cents_per_day":
                tokens = self._days.get(today)
            case "tokens_per_month" | "spend_cents_per_month":
                tokens = self._months.get(today.replace(day=1))
            case _:
                window = self._windows.get(name)
                return 0 if window is None else window.total(now_s)
        return 0 if tokens is None else tokens.counted_by(name, count_cached=count_cached)

    def _taken(self, name: LimitName, *, count_cached: bool, now_s: float, today: date) -> int:
        """What no other request may use: what was used, and what is reserved but for the overdraft."""
        spent = self.spent(name, count_cached=count_cached, now_s=now_s, today=today)
        overdraft = self._overdrafts.get(name)
        return spent + self._reserved(name) - (0 if overdraft is None else _wanted(name, overdraft))

    def block(
        self, limits: Iterable[Limit], need: Need, *, count_cached: bool, now_s: float, now: datetime
    ) -> Block | None:
        """The limit that keeps a request out; None if none does. A limit that refuses comes before one that
        lets it wait.

        More answers than `concurrency` allows are let in where no other is in flight: else such a request
        could never be served.
        """
        found: Block | None = None
        today = now.date()
        for limit in limits:
            if limit.name in BOUNDS:
                continue
            taken = self._taken(limit.name, count_cached=count_cached, now_s=now_s, today=today)
            wanted = _wanted(limit.name, need)
            if taken + wanted <= limit.value or self._may_overdraw(limit, taken):
                continue
            spent = self.spent(limit.name, count_cached=count_cached, now_s=now_s, today=today)
            block = Block(
                limit=limit,
                of=self.of,
                used=spent,
                reserved=self._reserved(limit.name),
                wanted=wanted,
                retry_s=self._retry_s(limit, spent, now_s=now_s, now=now),
                meter=self,
            )
            if found is None or (block.limit.action, -block.retry_s) < (found.limit.action, -found.retry_s):
                found = block
        return found

    def _may_overdraw(self, limit: Limit, taken: int) -> bool:
        """Whether a request may be let in that may get past a limit."""
        if limit.name in RESERVED:
            return taken < limit.value and limit.name not in self._overdrafts
        return limit.name == "concurrency" and not taken and limit.value > 0

    def _reserved(self, name: LimitName) -> int:
        match name:
            case "input_tokens_per_min":
                return self._reserved_input
            case "output_tokens_per_min":
                return self._reserved_output
            case "tokens_per_day" | "tokens_per_month":
                return self._reserved_input + self._reserved_output
            case "spend_cents_per_day" | "spend_cents_per_month":
                return self._reserved_cost
            case _:
                return 0

    def _retry_s(self, limit: Limit, spent: int, *, now_s: float, now: datetime) -> float:
        """Seconds until there may be room: until requests in flight end, if less than the limit was used;
        else until enough of that is over."""
        if limit.name == "concurrency" or (limit.name in RESERVED and spent < limit.value):
            return CONCURRENCY_RETRY_S
        midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
        if limit.name in ("tokens_per_day", "spend_cents_per_day"):
            return (midnight - now).total_seconds()
        if limit.name in BUDGETS:
            while midnight.day != 1:
                midnight += timedelta(days=1)
            return (midnight - now).total_seconds()
        window = self._windows.get(limit.name)
        if window is None:  # nothing was used here: other nodes hold what there is
            return CONCURRENCY_RETRY_S
        return window.until(max(0, limit.value - 1), now_s) or CONCURRENCY_RETRY_S


def _wanted(name: LimitName, need: Need) -> int:
    match name:
        case "concurrency":
            return need.places
        case "requests_per_min":
            return need.requests
        case "input_tokens_per_min":
            return need.input_tokens
        case "output_tokens_per_min":
            return need.output_tokens
        case "spend_cents_per_day" | "spend_cents_per_month":
            return need.cost_nanos
        case _:
            return need.input_tokens + need.output_tokens
