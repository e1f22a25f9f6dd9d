"""How much later than they were made tokens came to clients, by tenant: what forecasts add to the device.

Of a first token the two times are known of one request, and their difference is its delay: queues between the
processes, the event loop's lag, the write. Of gaps only both distributions are known. Gaps of the same rank
are taken for the same gap, which is exact if delivery keeps their order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pdmuxd.controlplane.telemetry.judged import JudgedRequest
from pdmuxd.controlplane.telemetry.recent import KEPT_REQUESTS, WINDOW_S
from pdmuxd.controlplane.telemetry.regimes import Regime
from pdmuxd.engine.link.durations import Counts, middle_s

LEAST_REQUESTS = 20
"""Of fewer of its own, a tenant's delays are taken to be those of all."""
RANKS = tuple((rank + 0.5) / 100 for rank in range(100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The delay of one tenant; empty where nothing was delivered."""

    ttft_s: tuple[float, ...] = ()
    """Of first tokens, sorted."""
    gap_s: tuple[float, ...] = ()
    """By which gaps were longer at clients, for each of RANKS, sorted; less than 0 if shorter."""

    def ttft_met(self, left_s: float) -> float:
        """The share of first tokens that are in time with so much time left when they are made."""
        return _within(self.ttft_s, left_s)

    def gap_met(self, left_s: float) -> float:
        """The same of gaps: `left_s` is the target less the gap as it is made."""
        return _within(self.gap_s, left_s)

    def ttft_within_s(self, share: float) -> float:
        """What this share of first tokens is delayed by at most."""
        return _rank(self.ttft_s, share)

    def gap_within_s(self, share: float) -> float:
        """The same of gaps; not less than 0."""
        return max(0.0, _rank(self.gap_s, share))


NO_DELAY = Delay()


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """What one tenant's clients got of late, to be judged by any targets."""

    firsts: tuple[tuple[float, int], ...]
    """Times to first token, with the prompt's new tokens."""
    gaps: Counts

    def gap_share(self, tbt_s: float) -> float | None:
        """The share of gaps within a target; None without a gap."""
        total = sum(count for _, count in self.gaps)
        met = sum(count for bucket, count in self.gaps if middle_s(bucket) <= tbt_s)
        return met / total if total else None

    def ttft_at(self, share: float) -> float:
        """What this share of first tokens came within."""
        return _rank(tuple(sorted(first_s for first_s, _ in self.firsts)), share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    tenant: str
    at_s: float
    life_s: float
    """From its arrival until `at_s`."""
    first_s: float
    new_tokens: int
    ttft_s: float
    made: Counts
    written: Counts


class DeliveryDelays:
    """Keeps the delays of the last minutes. Written in one thread; `of` may be called in any."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] = deque(maxlen=KEPT_REQUESTS)

    def on_request(self, judged: JudgedRequest, now_s: float) -> None:
        """A request ended; it counts if the gateway saw its writes."""
        record = judged.record
        if judged.is_delivered and judged.ttft_s is not None and record.ttft_s is not None:
            self._seen.append(
                _Seen(
                    tenant=record.tenant,
                    at_s=now_s,
                    life_s=judged.ttft_s + record.decode_s,
                    first_s=judged.ttft_s,
                    new_tokens=record.new_tokens,
                    ttft_s=max(0.0, judged.ttft_s - record.ttft_s),
                    made=record.tbt_counts,
                    written=judged.gap_counts,
                )
            )

    def all(self, now_s: float) -> dict[str, Delay]:
        """Delays by tenant; under the empty name those of all together."""
        by_tenant: dict[str, list[_Seen]] = {}
        for one in tuple(self._seen):
            if one.at_s >= now_s - WINDOW_S:
                by_tenant.setdefault(one.tenant, []).append(one)
        everyone = [one for seen in by_tenant.values() for one in seen]
        known = {name: _delay(seen) for name, seen in by_tenant.items() if len(seen) >= LEAST_REQUESTS}
        return known | ({"": _delay(everyone)} if len(everyone) >= LEAST_REQUESTS else {})

    def got(self, now_s: float, regime: Regime) -> dict[str, Got]:
        """What each tenant with enough requests got: in the last minutes, as far as `regime` held for most of
        a request's life."""
        by_tenant: dict[str, list[_Seen]] = {}
        for one in tuple(self._seen):
            if one.at_s >= now_s - WINDOW_S and regime.has(one.at_s - one.life_s / 2):
                by_tenant.setdefault(one.tenant, []).append(one)
        return {name: _got(seen) for name, seen in by_tenant.items() if len(seen) >= LEAST_REQUESTS}


def delay_of(delays: dict[str, Delay], tenant: str) -> Delay:
    """A tenant's own, or else those of all."""
    return delays.get(tenant) or delays.get("") or NO_DELAY


def _delay(seen: list[_Seen]) -> Delay:
    made, written = (list(_ranked(counts)) for counts in ((s.made for s in seen), (s.written for s in seen)))
    gaps = sorted(late - soon for soon, late in zip(made, written, strict=False)) if made else []
    return Delay(ttft_s=tuple(sorted(one.ttft_s for one in seen)), gap_s=tuple(gaps))


def _got(seen: list[_Seen]) -> Got:
    gaps: Counter[int] = Counter()
    for one in seen:
        for bucket, count in one.written:
            gaps[bucket] += count
    return Got(firsts=tuple((one.first_s, one.new_tokens) for one in seen), gaps=tuple(gaps.items()))


def _ranked(all_counts: Iterable[Counts]) -> Iterator[float]:
    """The durations at RANKS; nothing of nothing."""
    total: Counter[int] = Counter()
    for counts in all_counts:
        for bucket, count in counts:
            total[bucket] += count
    left, buckets = 0, sorted(total)
    ends = []
    for bucket in buckets:
        left += total[bucket]
        ends.append(left)
    for rank in RANKS if left else ():
        yield middle_s(buckets[min(len(buckets) - 1, bisect_right(ends, rank * left))])


def _within(ordered_s: tuple[float, ...], left_s: float) -> float:
    if not ordered_s:
        return float(left_s >= 0.0)
    return bisect_right(ordered_s, left_s) / len(ordered_s)


def _rank(ordered_s: tuple[float, ...], share: float) -> float:
    return ordered_s[min(len(ordered_s) - 1, int(share * len(ordered_s)))] if ordered_s else 0.0
