"""What each tenant's requests have told of late: shares in time by the minute, why they missed, their cost.

Bounded: minutes and misses are the last few of each tenant, seconds those of the last minute.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pdmuxd.tui.client.wire import HistoryOut, RequestEvent, TenantLoad, TenantsEvent
from pdmuxd.tui.state import seen

MINUTES_KEPT = 30
MISSES_KEPT = 300
MISSES_COUNT_S = 300.0
"""Misses older than this are not counted among the present causes."""
TENANTS_KEPT = 2000


@dataclass(slots=True)
class Minute:
    """One minute of the daemon's clock: what ended in it, and how many were late without an end."""

    number: int
    first_tokens: int = 0
    late_first_tokens: int = 0
    gaps: int = 0
    late_gaps: int = 0
    late_now: int = 0

    @property
    def met_ratio(self) -> float | None:
        """The worse of TTFT and TBT, the late that wait counted as missed; None without traffic."""
        judged = self.first_tokens + self.late_now
        shares = [
            1.0 - missed / of
            for missed, of in ((self.late_first_tokens + self.late_now, judged), (self.late_gaps, self.gaps))
            if of
        ]
        return min(shares) if shares else None


@dataclass(frozen=True, slots=True)
class Missed:
    """One target that one request missed."""

    request_id: str
    at_s: float
    target: str
    cause: str
    weight: int
    """Late gaps of a TBT target; 1 of a TTFT target."""
    by_ratio: float
    """By how much it was missed, as a share of the target."""
    split: tuple[str, int, int] | None = None
    """Mode and SMs of prefill and decode that were in force, where that is to blame."""


@dataclass(slots=True)
class TenantPast:
    """What is known of one tenant's past."""

    minutes: deque[Minute] = field(default_factory=lambda: deque(maxlen=MINUTES_KEPT))
    misses: deque[Missed] = field(default_factory=lambda: deque(maxlen=MISSES_KEPT))
    day: tuple[Minute, ...] = ()
    """The last day, as the daemon has kept it."""
    gpu_ratio: float | None = None
    """Its share of all SM time in the last whole minute that the daemon told of."""
    missing_since: datetime | None = None
    """Since when this console has seen it miss; None while it does not."""

    def minute(self, number: int) -> Minute:
        """The counts of that minute; empty ones if it is new."""
        if not self.minutes or self.minutes[-1].number < number:
            self.minutes.append(Minute(number))
        return self.minutes[-1]

    def met_by_minute(self, last: int, columns: int) -> list[float | None]:
        """The shares met of so many minutes up to `last`, oldest first."""
        found: list[float | None] = [None] * columns
        for minute in self.minutes:
            at = columns - 1 - (last - minute.number)
            if 0 <= at < columns:
                found[at] = minute.met_ratio
        return found

    def met_by_time(self, end_s: float, length_s: int, columns: int) -> list[float | None]:
        """The worst shares met in the last `length_s`, of the last day or of the minutes; oldest first."""
        worst: list[float | None] = [None] * columns
        for minute in self.day if length_s > MINUTES_KEPT * 60 else self.minutes:
            at = columns - 1 - int((end_s - minute.number * 60) * columns // length_s)
            met = minute.met_ratio
            if 0 <= at < columns and met is not None:
                so_far = worst[at]
                worst[at] = met if so_far is None else min(so_far, met)
        return worst

    def recent(self, now_s: float) -> list[Missed]:
        """The misses of the last five minutes."""
        return [miss for miss in self.misses if now_s - miss.at_s <= MISSES_COUNT_S]

    def causes(self, target: str, now_s: float) -> Counter[str]:
        """How often each cause made this target be missed of late, gaps counted one by one."""
        counted: Counter[str] = Counter()
        for miss in self.misses:
            if miss.target == target and now_s - miss.at_s <= MISSES_COUNT_S:
                counted[miss.cause] += miss.weight
        return counted


class TenantPasts:
    """The past of all tenants."""

    def __init__(self) -> None:
        self._pasts: dict[str, TenantPast] = {}
        self._prompts: deque[tuple[int, Counter[str]]] = deque(maxlen=60)

    def of(self, tenant: str) -> TenantPast:
        """One tenant's past; an empty one if nothing was heard of it."""
        return self._pasts.get(tenant) or TenantPast()

    def add_request(self, one: RequestEvent) -> None:
        if one.ended_at is None:
            return
        at_s = one.ended_at.timestamp()
        past = self._past(one.tenant)
        minute = past.minute(int(at_s // 60))
        missed = {miss.target for miss in one.missed}
        if one.ttft_ms is not None:
            minute.first_tokens += 1
            minute.late_first_tokens += "ttft" in missed
        if one.tbt_gaps:
            minute.gaps += one.tbt_gaps
            minute.late_gaps += min(seen.late_gaps(one), one.tbt_gaps)
        self._miss(past, one, at_s)
        second = int(at_s)
        if not self._prompts or self._prompts[-1][0] < second:
            self._prompts.append((second, Counter()))
        self._prompts[-1][1][one.tenant] += one.new_tokens or 0

    def fill(self, tenant: str, kept: HistoryOut, now: datetime) -> None:
        """Whole minutes as the daemon has kept them, in place of what this console has seen of them."""
        past, columns = self._past(tenant), kept.columns
        current = int(now.timestamp() // 60)
        minutes = {minute.number: minute for minute in past.minutes}
        counts = zip(columns.ttft_judged, columns.ttft_missed, columns.gaps, columns.gaps_missed, strict=True)
        for at, (first_tokens, late_first_tokens, gaps, late_gaps) in zip(kept.at, counts, strict=True):
            number = int(at.timestamp() // 60)
            if number < current:
                minutes[number] = Minute(number, first_tokens, late_first_tokens, gaps, late_gaps)
        past.minutes = deque((minutes[number] for number in sorted(minutes)), maxlen=MINUTES_KEPT)
        used = zip(kept.at, columns.prefill_sm_ms, columns.decode_sm_ms, columns.total_sm_ms, strict=True)
        past.gpu_ratio = None
        for at, prefill_ms, decode_ms, total_ms in used:
            if int(at.timestamp() // 60) == current - 1 and total_ms:
                past.gpu_ratio = (prefill_ms + decode_ms) / total_ms

    def fill_day(self, tenant: str, kept: HistoryOut) -> None:
        """The last day as the daemon has kept it."""
        columns = kept.columns
        counts = zip(columns.ttft_judged, columns.ttft_missed, columns.gaps, columns.gaps_missed, strict=True)
        self._past(tenant).day = tuple(
            Minute(int(at.timestamp() // 60), *counted) for at, counted in zip(kept.at, counts, strict=True)
        )

    def add_known(self, tenant: str, requests: Iterable[RequestEvent]) -> None:
        """Misses that the daemon had kept before this console was there; those it has are left out."""
        past = self._past(tenant)
        seen = {miss.request_id for miss in past.misses}
        for one in requests:
            if one.ended_at is not None and one.request_id not in seen:
                self._miss(past, one, one.ended_at.timestamp())

    def _miss(self, past: TenantPast, one: RequestEvent, at_s: float) -> None:
        for miss in one.missed:
            past.misses.append(
                Missed(
                    request_id=one.request_id,
                    at_s=at_s,
                    target=miss.target,
                    cause=miss.cause,
                    weight=max(1, seen.late_gaps(one)) if miss.target == "tbt" else 1,
                    by_ratio=excess_ratio(one, miss.target),
                    split=(miss.mode, miss.prefill_sms or 0, miss.decode_sms or 0) if miss.mode else None,
                )
            )

    def add_tenants(self, event: TenantsEvent) -> None:
        number = int(event.at.timestamp() // 60)
        for load in event.tenants:
            past = self._past(load.tenant)
            past.minute(number).late_now = load.late_now
            past.missing_since = (past.missing_since or event.at) if is_missing(load) else None

    def prompt_shares(self, now_s: float) -> Mapping[str, float]:
        """Each tenant's share of the prompt tokens computed for requests that ended in the last minute."""
        total: Counter[str] = Counter()
        for second, counted in self._prompts:
            if now_s - second <= 60:
                total.update(counted)
        all_of_them = sum(total.values())
        return {tenant: count / all_of_them for tenant, count in total.items()} if all_of_them else {}

    def _past(self, tenant: str) -> TenantPast:
        if tenant not in self._pasts:
            if len(self._pasts) >= TENANTS_KEPT:
                del self._pasts[next(iter(self._pasts))]
            self._pasts[tenant] = TenantPast()
        return self._pasts[tenant]


def is_missing(load: TenantLoad) -> bool:
    """Whether the daemon says that a target is missed now."""
    return load.verdict == "missed"


def excess_ratio(one: RequestEvent, target: str) -> float:
    """The share of the target by which a request's first token, or longest gap, was late."""
    pairs = {
        "ttft": (seen.ttft_ms(one), one.ttft_target_ms),
        "tbt": (seen.tbt_max_ms(one), one.tbt_target_ms),
        "e2e": (seen.e2e_ms(one), one.e2e_target_ms),
    }
    took_ms, target_ms = pairs.get(target, (None, None))
    return 0.0 if took_ms is None or not target_ms else max(0.0, took_ms / target_ms - 1.0)
