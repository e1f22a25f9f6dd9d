"""Records as an engine would send them, a clock that a test turns, and a reader of event streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pdmuxd.controlplane.events.messages import TenantsEvent
from pdmuxd.controlplane.events.outcomes import Outcome
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.outlook.what_if import Predicting
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.judged import JudgedRequest
from pdmuxd.controlplane.telemetry.recent import EndedRequest
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.observing import NOTHING_HIDDEN
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.link.durations import bucket_of
from pdmuxd.engine.link.messages import LINK_PROTOCOL, EngineStats, Hello, IterationRecord, RequestRecord

START_S = 1_769_860_800.0


HELLO = Hello(
    protocol=LINK_PROTOCOL,
    engine="emulator",
    engine_version="0.1.0",
    pid=1,
    model="llama-8b",
    device="H200",
    total_sms=132,
    partitions=((132, 0), (112, 20), (96, 36), (0, 132)),
    profile="h200-llama-8b",
    profile_provenance="derived",
    settings_version=0,
)


def predicting() -> Predicting:
    """`muxwise` by a shipped profile."""
    profile = load_profile("h200-llama-8b")
    splits = tuple(Partition(prefill_sms=p, decode_sms=d) for p, d in HELLO.partitions[1:-1])
    context = replace(profile.context(), splits=splits)
    return Predicting(name=profile.name, policy="muxwise", context=context)


class HandClock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s

    def turn(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(frozen=True)
class Told:
    """One event as a client sees it."""

    name: str
    id: str | None
    data: Any

    @property
    def number(self) -> int:
        assert self.id is not None
        return int(self.id.partition("-")[2])


def read_events(stream: str) -> list[Told]:
    """The events in the text of a stream; comments and what has no data are no events."""
    events = []
    for block in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            events.append(Told(fields["event"], fields.get("id"), json.loads(fields["data"])))
    return events


def named(events: Iterable[Told], name: str) -> list[Told]:
    return [event for event in events if event.name == name]


def step(**changes: Any) -> IterationRecord:
    """A decode step on 36 SMs beside a prefill on 96."""
    fields: dict[str, Any] = {
        "step": 1,
        "now_s": 1.0,
        "mode": "split",
        "reason": "best_fit",
        "partition_id": 1,
        "prefill_sms": 96,
        "decode_sms": 36,
        "decode_bs": 4,
        "decode_reused_tokens": 4096,
        "prefill_new_tokens": 2048,
        "prefill_layers": 8,
        "predicted_decode_s": 0.02,
        "measured_step_s": 0.024,
        "guard_ratio": 1.2,
        "tbt_slack_s": 0.016,
        "prefill_bs": 1,
    }
    return IterationRecord(**(fields | changes))


def request_record(**changes: Any) -> RequestRecord:
    """A request of `chat` that met both targets."""
    fields: dict[str, Any] = {
        "request_id": "r1",
        "tenant": "chat",
        "outcome": "finished",
        "new_tokens": 1000,
        "reused_tokens": 0,
        "output_tokens": 11,
        "queue_s": 0.1,
        "ttft_s": 0.3,
        "ttft_target_s": 1.3,
        "tbt_target_s": 0.04,
        "tbt_max_s": 0.03,
        "tbt_p99_s": 0.03,
        "tbt_gaps": 10,
        "tbt_gaps_met": 10,
        "retractions": 0,
        "slo_version": 1,
        "tbt_counts": ((bucket_of(0.03), 10),),
    }
    return RequestRecord(**(fields | changes))


def heartbeat(**changes: Any) -> EngineStats:
    zeros: dict[str, Any] = dict.fromkeys(EngineStats.__struct_fields__, 0)
    return EngineStats(**(zeros | {"policy": "auto", "shadow": None, "hidden": NOTHING_HIDDEN} | changes))


def directory(version: int = 1, **tbt_s: float) -> DirectorySnapshot:
    """Tenants with their TBT targets; each promised that 99% of its requests meet theirs."""
    tenants = {
        name: TenantRecord(
            name=name,
            enabled=True,
            slo=Slo(ttft_fixed_s=0.5, ttft_per_1k_new_tokens_s=0.8, tbt_s=target_s, attainment_ratio=0.99),
            slo_version=version,
            max_in_flight=8,
        )
        for name, target_s in tbt_s.items()
    }
    return DirectorySnapshot(version=version, tenants=tenants, keys={})


def telemetry(
    clock: HandClock,
    *,
    on_settled: Callable[[JudgedRequest], None] = lambda _: None,
    on_outcome: Callable[[str, Outcome], None] = lambda *_: None,
    **tbt_s: float,
) -> Telemetry:
    made = Telemetry(clock=clock, on_settled=on_settled, on_outcome=on_outcome)
    made.on_directory(directory(**(tbt_s or {"chat": 0.04})))
    return made


def loaded_telemetry(known: DirectorySnapshot, *, seconds: int = 40) -> Telemetry:
    """Seconds of load: `chat` sends short prompts, `search` long ones, 12 requests decode."""
    clock = HandClock()
    made = Telemetry(clock=clock)
    made.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    made.on_directory(known)
    for second in range(seconds):
        made.on_message(step(now_s=float(second), decode_bs=12, decode_reused_tokens=12_000))
        for tenant, new_tokens in (("chat", 400), ("search", 6000)):
            made.on_begin(f"{tenant}{second}", tenant=tenant, path="/")
            record = {"request_id": f"{tenant}{second - 5}", "tenant": tenant, "new_tokens": new_tokens}
            if second >= 5:
                made.on_request(request_record(**record, ttft_s=0.4, tbt_gaps=100, tbt_gaps_met=100))
                made.on_answered(f"{tenant}{second - 5}", status=200)
        clock.turn(1.0)
    return made


def tenants_event(known: Telemetry) -> TenantsEvent:
    """The event `tenants` of this moment."""
    return known.tenants_event(known.clock())


def ended_request(
    tenant: str,
    *,
    new_tokens: int,
    arrived_s: float = 0.0,
    took_s: float = 5.0,
    output_tokens: int = 1,
    ttft_s: float | None = 1.0,
) -> EndedRequest:
    """A request that ended with its first token and all gaps in time."""
    return EndedRequest(
        tenant=tenant,
        arrived_s=arrived_s,
        ended_s=arrived_s + took_s,
        new_tokens=new_tokens,
        reused_tokens=0,
        output_tokens=output_tokens,
        ttft_s=ttft_s,
        ttft_met=True,
        gaps=output_tokens - 1,
        gaps_met=output_tokens - 1,
    )
