"""What is live on pages: the values of this second, as text, for the page itself and for its event stream.

They are made once a second however many pages are open, of what the daemon tells its other clients anyhow.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from pdmuxd.controlplane.api.events import MAX_CLIENTS
from pdmuxd.controlplane.events.messages import AlarmEvent, StatsEvent, TenantLoad, TenantsEvent
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.rendering import ms_with_unit
from pdmuxd.controlplane.web.verdicts import Verdict, verdict
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.words import met_ratio, sms_in_words, worst_first

PERIOD_S = 1.0
MOST_STREAMS = MAX_CLIENTS
"""As many as consoles may follow."""
MOST_ROWS = 40
"""Tenants in an event: twice those on the overview, so that a page's rows stay known for a while."""
STATES = {"missed": "misses", "met": "meets", "no_traffic": "no traffic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The GPU as one strip of its SMs, in SMs: prefill from the left, decode from the right."""

    total: int
    prefill: float
    decode: float
    boundary: int | None
    """Where prefill's partition ends; None while one batch has all SMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """A tenant in the table, as text."""

    tenant: str
    state: str
    verdict: str
    met: str
    promised: str
    late: str
    oldest: str
    waiting: str
    ttft: str
    tbt: str
    rate: str
    budget: str


@dataclass(frozen=True, kw_only=True)
class Now:
    """How things are at one instant."""

    stats: StatsEvent
    loads: Sequence[TenantLoad]
    """Worst first; at most a hundred."""
    omitted: int
    verdict: Verdict
    alarms: Sequence[AlarmEvent]

    @cached_property
    def strip(self) -> Strip | None:
        """None while no engine says what its SMs do."""
        stats = self.stats
        total, prefill_ratio = stats.total_sms, stats.sm_busy_prefill_ratio
        if not total or prefill_ratio is None:
            return None
        is_split = (
            stats.mode not in ("fused", "decode") and bool(stats.prefill_sms) and bool(stats.decode_sms)
        )
        prefill = min(float(stats.prefill_sms or 0) if is_split else total, prefill_ratio * total)
        decode = min(
            float(stats.decode_sms or 0) if is_split else total - prefill,
            (stats.sm_busy_decode_ratio or 0.0) * total,
        )
        return Strip(
            total=total,
            prefill=round(prefill, 2),
            decode=round(decode, 2),
            boundary=stats.prefill_sms if is_split else None,
        )

    @cached_property
    def values(self) -> Mapping[str, str]:
        """Each with the name that an element of the page has."""
        stats, strip = self.stats, self.strip
        kv = stats.kv_used_tokens
        kv_share = kv / stats.kv_capacity_tokens if kv is not None and stats.kv_capacity_tokens else None
        refused = sum(load.refused_per_s for load in self.loads)
        shares = (None, None) if strip is None else (strip.prefill / strip.total, strip.decode / strip.total)
        idle = None if shares[0] is None or shares[1] is None else max(0.0, 1.0 - shares[0] - shares[1])
        return {
            "verdict": self.verdict.text,
            "verdict_more": "\n".join(self.verdict.lines),
            "split": (
                "no engine"
                if stats.partition_id is None
                else sms_in_words(stats.mode, stats.prefill_sms, stats.decode_sms)
            ),
            "prefill_share": formats.percent(shares[0]),
            "decode_share": formats.percent(shares[1]),
            "idle_share": formats.percent(idle),
            "served": formats.rate(stats.requests_per_s),
            "in_time": formats.rate(stats.goodput_per_s),
            "in_time_by_steps": formats.rate(stats.good_by_steps_per_s),
            "in_time_forgiven": formats.rate(stats.good_forgiven_per_s),
            "refused": formats.rate(refused),
            "waiting": formats.count(stats.waiting_total),
            "late": formats.count(stats.late_now),
            "oldest": formats.duration(stats.oldest_wait_ms / 1000) if stats.waiting_total else formats.NONE,
            "decoding": formats.count(stats.running),
            "prompt_tokens": formats.count(stats.prompt_tokens_per_s),
            "output_tokens": formats.count(stats.output_tokens_per_s),
            "kv": formats.percent(kv_share),
            "cache_hits": formats.percent(stats.cache_hit_ratio),
            "ttft": ms_with_unit(stats.ttft_ms.p99),
            "tbt": ms_with_unit(stats.tbt_gap_ms.p99),
        }

    @cached_property
    def rows(self) -> Sequence[TenantRow]:
        return [row_of(load) for load in self.loads[:MOST_ROWS]]

    @cached_property
    def message(self) -> bytes:
        body = {
            "state": self.verdict.state,
            "values": self.values,
            "strip": None if self.strip is None else asdict(self.strip),
            "tenants": {row.tenant: asdict(row) for row in self.rows},
            "alarms": [
                {
                    "id": alarm.id,
                    "severity": alarm.severity,
                    "since": alarm.since.isoformat(),
                    "text": alarm.text,
                }
                for alarm in self.alarms
            ],
        }
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


class Live:
    """Used in the daemon's event loop."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._made: tuple[float, Now] | None = None
        self.streams = 0

    def now(self) -> Now:
        """How things are, at most a second old."""
        at_s = self._telemetry.clock()
        if self._made is None or not 0 <= at_s - self._made[0] < PERIOD_S / 2:
            self._made = at_s, self._look(at_s)
        return self._made[1]

    async def stream(self) -> AsyncIterator[bytes]:
        """Every second, until the daemon stops or the browser leaves."""
        self.streams += 1
        try:
            yield b"retry: 2000\n\n"
            while not self._telemetry.events.is_closed:
                yield self.now().message
                await asyncio.sleep(PERIOD_S)
        finally:
            self.streams -= 1

    def _look(self, at_s: float) -> Now:
        telemetry = self._telemetry
        # Told a moment ago: with thousands of tenants, to look at each again costs far more than all else.
        tenants, stats = telemetry.told.get("tenants"), telemetry.told.get("stats")
        if not isinstance(tenants, TenantsEvent) or not isinstance(stats, StatsEvent):
            tenants, stats = telemetry.tenants_event(at_s), telemetry.stats_event(at_s)
        loads = worst_first(tenants.tenants)
        return Now(
            stats=stats,
            loads=loads,
            omitted=tenants.omitted,
            verdict=verdict(telemetry, stats, loads, tenants.incidents, tenants.incidents_omitted),
            alarms=telemetry.alarms.active(),
        )


def row_of(load: TenantLoad) -> TenantRow:
    """A tenant as text."""
    budget = load.budget_left_ratio
    return TenantRow(
        tenant=load.tenant,
        state=STATES[load.verdict],
        verdict=load.verdict,
        met=formats.percent(met_ratio(load), 1),
        promised=formats.percent(load.target_ratio, 1),
        late=formats.count(load.late_now),
        oldest=formats.duration(load.oldest_wait_ms / 1000) if load.waiting else formats.NONE,
        waiting=formats.count(load.waiting),
        ttft=formats.ms(load.ttft_ms.p99),
        tbt=formats.ms(load.tbt_gap_ms.p99),
        rate=formats.rate(load.requests_per_s),
        budget=formats.NONE if budget is None else "overdrawn" if budget < 0 else formats.percent(budget),
    )
