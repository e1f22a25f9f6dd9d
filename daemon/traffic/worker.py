"""The worker process of a replay: a task on its standard input, what it says line by line on its output.

`python -P -m pdmuxd.daemon.traffic.worker`. It ends by itself when whoever started it is gone.
"""

from __future__ import annotations

import math
import os
import random
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from pdmuxd.controlplane.node.traffic_replays import Outcome, TenantOutcome
from pdmuxd.controlplane.telemetry.judged import e2e_missed
from pdmuxd.daemon.traffic.prefixes import BLOCK_BYTES
from pdmuxd.daemon.traffic.ring import CapturedRequest
from pdmuxd.daemon.traffic.task import Failed, Finished, Progress, ReplayTask, Said, Variant
from pdmuxd.engine.core.errors import PdmuxdError
from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.observer import NullObserver
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.emulator.server.telemetry import request_record
from pdmuxd.engine.link.messages import EngineSettings, RequestRecord

MEMORY_BYTES = 4 << 30
REPORT_EVERY_S = 0.2
_DEFAULT_BLOCK_TOKENS = 256
_ROUNDING_S = 1e-9


class _Ended(NullObserver):
    """Makes of each request the record that a serving engine would send."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        self.engine: EmulatedEngine | None = None
        self.records: list[RequestRecord] = []
        self._on_ended = on_ended

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:  # noqa: ARG002 - the interface
        if self.engine is not None:
            self.records.append(request_record(self.engine, request))
        self._on_ended()


def replay(task: ReplayTask, say: Callable[[Progress], None]) -> tuple[Outcome, ...]:
    """Run every variant. Raises: PolicyError, PartitionError, ProfileError, SloError as engines do."""
    loads = [_load(task.requests, variant) for variant in task.variants]
    total, done = sum(map(len, loads)), 0

    def ended() -> None:
        nonlocal done
        done += 1
        say(Progress(done=done, total=total))

    outcomes = []
    for variant, load in zip(task.variants, loads, strict=True):
        outcomes.append(_run(task, variant, load, ended))
    return tuple(outcomes)


def _run(
    task: ReplayTask, variant: Variant, load: Sequence[CapturedRequest], ended: Callable[[], None]
) -> Outcome:
    observer = _Ended(ended)
    block_tokens = _block_tokens(task.requests)
    engine = observer.engine = EmulatedEngine(
        profile=task.profile,
        policy=variant.policy,
        observer=observer,
        block_tokens=block_tokens,
        keep_step_log=False,
    )
    ack = engine.apply(
        EngineSettings(
            version=1,
            policy=variant.policy,
            tenants=variant.tenants,
            predictors=task.predictors,
            partitions=variant.partitions,
        )
    )
    if ack.error is not None:
        raise PdmuxdError(f"{variant.label}: {ack.error}")
    requests = [
        EmulatedRequest(
            request_id=str(index),
            tenant=one.tenant,
            arrival_s=one.at_s,
            input_tokens=one.input_tokens,
            output_tokens=one.output_tokens,
            block_keys=one.prefixes[: one.input_tokens // block_tokens],
        )
        for index, one in enumerate(load)
    ]
    drive(engine, requests, sample_every_s=10.0, on_sample=lambda _: None)
    return _outcome(variant, load, observer.records, engine)


def _load(requests: Sequence[CapturedRequest], variant: Variant) -> list[CapturedRequest]:
    """The requests of a variant: more or fewer of a tenant, sooner or later; the first arrives at 0.

    Copies arrive within a second of their original and share its prompt's beginning.
    """
    draw = random.Random(7)  # noqa: S311 - the same load for the same question
    found: list[CapturedRequest] = []
    for one in requests:
        scale = variant.tenant_scale.get(one.tenant, 1.0)
        copies = int(scale) + (draw.random() < scale % 1.0)
        for copy in range(copies):
            at_s = one.at_s if not copy else one.at_s + draw.random()
            found.append(msgspec.structs.replace(one, at_s=at_s))
    found.sort(key=lambda one: one.at_s)
    start_s = found[0].at_s if found else 0.0
    scaled = ((one.at_s - start_s) / variant.rate_scale for one in found)
    return [msgspec.structs.replace(one, at_s=at_s) for one, at_s in zip(found, scaled, strict=True)]


def _block_tokens(requests: Sequence[CapturedRequest]) -> int:
    """Estimate how many tokens a named block of a prompt has."""
    known = [one for one in requests if one.prompt_bytes]
    prompt_bytes = sum(one.prompt_bytes for one in known)
    if not prompt_bytes:
        return _DEFAULT_BLOCK_TOKENS
    return max(1, round(BLOCK_BYTES * sum(one.input_tokens for one in known) / prompt_bytes))


def _outcome(
    variant: Variant,
    load: Sequence[CapturedRequest],
    records: Sequence[RequestRecord],
    engine: EmulatedEngine,
) -> Outcome:
    by_tenant: dict[str, list[RequestRecord]] = defaultdict(list)
    for record in records:
        by_tenant[record.tenant].append(record)
    span_s = load[-1].at_s - load[0].at_s if load else 0.0
    counters, good = engine.counters(), sum(map(_is_good, records))
    sm_s = engine.total_sms * counters.elapsed_s
    promised = {slo.tenant: slo.attainment_ratio for slo in variant.tenants}
    per_1k_s = {slo.tenant: slo.ttft_per_1k_new_tokens_s for slo in variant.tenants}
    return Outcome(
        label=variant.label,
        policy=engine.counters().policy,
        requests=len(load),
        finished=sum(record.outcome == "finished" for record in records),
        span_s=round(span_s, 3),
        goodput_per_s=round(good / max(span_s, 1.0), 4),
        prefill_sm_ratio=round(counters.busy_prefill_sm_s / sm_s, 4) if sm_s else 0.0,
        decode_sm_ratio=round(counters.busy_decode_sm_s / sm_s, 4) if sm_s else 0.0,
        tenants=tuple(
            _tenant(name, found, promised.get(name, 0.99), per_1k_s.get(name, 0.0))
            for name, found in sorted(by_tenant.items())
        ),
    )


def _tenant(
    name: str, records: Sequence[RequestRecord], promised_ratio: float, per_1k_s: float
) -> TenantOutcome:
    count = len(records)
    # A request without a token is late, whatever its target.
    ttft_s = np.array([np.inf if one.ttft_s is None else one.ttft_s for one in records])
    ttft = float(np.mean([one.ttft_s is not None and _in_time(one) for one in records]))
    gaps = sum(one.tbt_gaps for one in records)
    tbt = sum(one.tbt_gaps_met for one in records) / gaps if gaps else None
    whole = 1.0 - sum(bool(e2e_missed(one)) for one in records) / count
    needed_s = ttft_s - np.array([one.new_tokens for one in records]) * (per_1k_s / 1000.0)
    return TenantOutcome(
        tenant=name,
        requests=count,
        finished=sum(one.outcome == "finished" for one in records),
        ttft_p50_s=_quantile(ttft_s, 0.5),
        ttft_p99_s=_quantile(ttft_s, 0.99),
        ttft_attainment_ratio=round(ttft, 6),
        tbt_p99_s=_quantile(np.array([one.tbt_p99_s or 0.0 for one in records]), 0.99),
        tbt_attainment_ratio=None if tbt is None else round(tbt, 6),
        promised_ratio=promised_ratio,
        kept=min(ttft, 1.0 if tbt is None else tbt, whole) >= promised_ratio,
        needed_ttft_fixed_s=_quantile(needed_s, promised_ratio),
    )


def _is_good(record: RequestRecord) -> bool:
    gap_s = record.tbt_p99_s or 0.0
    in_time = _in_time(record) and gap_s <= record.tbt_target_s + _ROUNDING_S
    return record.outcome == "finished" and in_time and not e2e_missed(record)


def _in_time(record: RequestRecord) -> bool:
    return record.ttft_s is not None and record.ttft_s <= record.ttft_target_s + _ROUNDING_S


def _quantile(values: np.ndarray[tuple[int], np.dtype[np.float64]], share: float) -> float | None:
    found = nearest_rank(values.tolist(), share)
    return round(found, 6) if found is not None and math.isfinite(found) else None


def main() -> int:
    """Do the task on the standard input."""
    parent = os.getppid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.nice(10)
    said_s = 0.0

    def write(said: Said) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
        sys.stdout.buffer.flush()

    def say(progress: Progress) -> None:
        nonlocal said_s
        now_s = time.monotonic()
        if now_s - said_s >= REPORT_EVERY_S:
            said_s = now_s
            if os.getppid() != parent:
                os._exit(1)  # nobody waits for the answer
            write(progress)

    try:
        task = msgspec.json.decode(sys.stdin.buffer.read(), type=ReplayTask)
        write(Finished(outcomes=replay(task, say)))
    except (PdmuxdError, msgspec.MsgspecError) as error:
        write(Failed(reason=str(error)))
    except MemoryError:
        write(Failed(reason=f"the replay needs more than {MEMORY_BYTES >> 30} GiB of memory"))
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
