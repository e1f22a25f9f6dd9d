"""Replays of recent traffic as jobs: one worker process at a time, bounded, and ended when asked."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

import msgspec

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.node.traffic_replays import Job, WantedSharing, WantedVariant
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.traffic.ring import CapturedRequest, TrafficRing
from pdmuxd.daemon.traffic.task import Failed, Finished, Progress, ReplayTask, Said, Variant
from pdmuxd.engine.core.errors import ConflictError, EngineError, NotFoundError
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import EngineSettings, Hello, TenantSlo

MOST_REQUESTS = 20_000
"""Of one replay; the newest are taken."""
MOST_COPIES = 10 * MOST_REQUESTS
MOST_WAITING = 3
KEPT = 20
TIMEOUT_S = 600.0
BASELINE = "in force"
_LINE_BYTES = 1 << 22


@dataclass(slots=True, eq=False)
class _Entry:
    job: Job
    task: ReplayTask | None
    running: asyncio.Task[None] | None = None


class TrafficReplays:
    """Implements ReplayJobs. Jobs are in memory: with the daemon they and their worker are gone."""

    def __init__(
        self,
        ring: TrafficRing,
        *,
        status: Callable[[], EngineStatus],
        wanted: Callable[[], EngineSettings],
        directory: Callable[[], DirectorySnapshot],
        emulated: str,
        clock: Callable[[], float] = time.time,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`emulated` is the profile that an emulated engine has."""
        self._ring = ring
        self._status = status
        self._wanted = wanted
        self._directory = directory
        self._emulated = emulated
        self._clock = clock
        self._timeout_s = timeout_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def begin(self, variants: tuple[WantedVariant, ...], *, minutes: float) -> Job:
        """Replay the newest requests, at most MOST_REQUESTS.

        Raises: EngineError if there is no engine or no traffic, ConflictError if too many wait.
        """
        if sum(not _has_ended(entry.job) for entry in self._entries.values()) > MOST_WAITING:
            raise ConflictError(f"{MOST_WAITING} replays wait already; cancel one or wait for them")
        hello = self._status().hello
        if hello is None:
            raise EngineError("no engine has introduced itself yet, so there is nothing to replay on")
        since_s = self._clock() - 60.0 * minutes
        requests = await asyncio.to_thread(self._ring.read, since_s=since_s, limit=MOST_REQUESTS)
        if not requests:
            raise EngineError(f"no request that ended was captured in the last {minutes:g} minutes")
        task = self._task(hello, requests, variants)
        _require_bounded(task)
        job = Job(
            job_id=uuid4().hex[:12],
            state="waiting",
            created_s=self._clock(),
            requests=len(requests),
            done=0,
            total=len(requests) * len(task.variants),
        )
        entry = self._entries[job.job_id] = _Entry(job, task)
        entry.running = asyncio.create_task(self._run(entry), name=f"replay {job.job_id}")
        self._forget()
        return job

    def latest(self) -> tuple[Job, ...]:
        return tuple(entry.job for entry in reversed(self._entries.values()))

    def get(self, job_id: str) -> Job:
        """Raises: NotFoundError."""
        return self._find(job_id).job

    def cancel(self, job_id: str) -> Job:
        """End it, if it has not ended. Raises: NotFoundError."""
        entry = self._find(job_id)
        if not _has_ended(entry.job):
            entry.job = replace(entry.job, state="cancelled")
            if entry.running is not None:
                entry.running.cancel()
        return entry.job

    async def close(self) -> None:
        running = [entry.running for entry in self._entries.values() if entry.running is not None]
        for job_id in tuple(self._entries):
            self.cancel(job_id)
        await asyncio.gather(*running, return_exceptions=True)

    def _find(self, job_id: str) -> _Entry:
        entry = self._entries.get(job_id)
        if entry is None:
            raise NotFoundError(f"there is no replay {job_id[:40]!r}; the latest {KEPT} are kept")
        return entry

    def _forget(self) -> None:
        for job_id in [key for key, entry in self._entries.items() if _has_ended(entry.job)]:
            if len(self._entries) > KEPT:
                del self._entries[job_id]

    def _task(
        self, hello: Hello, requests: list[CapturedRequest], variants: tuple[WantedVariant, ...]
    ) -> ReplayTask:
        wanted, stats = self._wanted(), self._status().stats
        known = self._directory().tenants
        tenants = {name: known[name] for name in {one.tenant for one in requests} if name in known}
        predictors = wanted.predictors
        if predictors is not None and difference(predictors, hello) is not None:
            predictors = None
        policy = stats.policy if stats is not None else wanted.policy
        baseline = WantedVariant(label=BASELINE, targets={}, tenant_scale={})
        return ReplayTask(
            requests=tuple(requests),
            profile=self._profile(hello),
            predictors=predictors,
            variants=tuple(
                Variant(
                    label=one.label,
                    policy=one.policy or policy,
                    partitions=one.partitions or wanted.partitions or _splits_of(hello),
                    tenants=_served(tenants, one),
                    rate_scale=one.rate_scale,
                    tenant_scale=dict(one.tenant_scale),
                )
                for one in (baseline, *variants)
            ),
        )

    def _profile(self, hello: Hello) -> Profile:
        """The emulated engine's own. A real one is the roofline of its shapes as it told them, with the
        configured profile's host, delivery and rare stalls."""
        base = load_profile(self._emulated)
        if hello.engine == "emulator":
            return base
        if hello.model_shape is None or hello.device_shape is None or hello.overheads is None:
            raise EngineError("the engine does not tell its shapes, so it cannot be emulated")
        return replace(
            base,
            name=f"{hello.model} on {hello.device}",
            provenance="derived: roofline of the engine's shapes",
            model=hello.model_shape,
            device=hello.device_shape,
            overheads=hello.overheads,
            tensor_parallel=hello.tensor_parallel,
            kv_capacity_tokens=hello.kv_capacity_tokens or base.kv_capacity_tokens,
            fused_tile_rows=hello.fused_tile_rows,
            solo_run=(),
            captured_decode_bs=(),
        )

    async def _run(self, entry: _Entry) -> None:
        task, entry.task = entry.task, None
        async with self._one_at_a_time:
            if entry.job.state == "cancelled" or task is None:
                return
            entry.job = replace(entry.job, state="running")
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._follow(entry, msgspec.json.encode(task))
            except TimeoutError:
                reason = f"it took longer than {self._timeout_s:g} s; replay fewer minutes or variants"
                entry.job = replace(entry.job, state="failed", reason=reason)
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                entry.job = replace(entry.job, state="failed", reason=f"its worker failed: {error}")

    async def _follow(self, entry: _Entry, task: bytes) -> None:
        arguments = [sys.executable, "-P", "-m", "pdmuxd.daemon.traffic.worker"]
        pipe = asyncio.subprocess.PIPE
        worker = await asyncio.create_subprocess_exec(
            *arguments, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=_LINE_BYTES
        )
        try:
            if worker.stdin is None or worker.stdout is None:
                raise ValueError("it has no pipes")
            with contextlib.suppress(ConnectionError):
                worker.stdin.write(task)
                await worker.stdin.drain()
            worker.stdin.close()
            async for line in worker.stdout:
                entry.job = _told(entry.job, msgspec.json.decode(line, type=Said))
            code = await worker.wait()
            if not _has_ended(entry.job):
                reason = f"its worker ended with {code}; is there enough memory?"
                entry.job = replace(entry.job, state="failed", reason=reason)
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


def _told(job: Job, said: Said) -> Job:
    match said:
        case Progress():
            return replace(job, done=said.done, total=said.total)
        case Failed():
            return replace(job, state="failed", reason=said.reason)
        case Finished():
            total = sum(outcome.requests for outcome in said.outcomes)
            return replace(job, state="done", done=total, total=total, outcomes=said.outcomes)


def _require_bounded(task: ReplayTask) -> None:
    """Raises: ConflictError for more requests than a worker should be given."""
    counts = [
        sum(variant.tenant_scale.get(one.tenant, 1.0) for one in task.requests) for variant in task.variants
    ]
    if sum(counts) > MOST_COPIES:
        raise ConflictError(
            f"the variants have {sum(counts):,.0f} requests in all; allowed are {MOST_COPIES:,}: replay "
            "fewer minutes, or multiply less"
        )


def _served(tenants: Mapping[str, TenantRecord], wanted: WantedVariant) -> tuple[TenantSlo, ...]:
    """How each tenant is served: as it is in force, but for what is wanted otherwise."""
    found: list[TenantSlo] = []
    for name in sorted({*tenants, *wanted.targets}):
        slo, asked = wanted.targets.get(name), wanted.sharing.get(name, WantedSharing())
        base = tenants.get(name)
        if base is None:  # deleted since: only its targets are known, as they are asked for
            base = TenantRecord(
                name=name, enabled=True, slo=slo or DEFAULT_SLO, slo_version=1, max_in_flight=1
            )
        found.append(
            replace(
                base,
                slo=slo or base.slo,
                priority_class=asked.priority_class or base.priority_class,
                weight=base.weight if asked.weight is None else asked.weight,
                late_action=asked.late_action or base.late_action,
            ).for_engine()
        )
    return tuple(found)


def _splits_of(hello: Hello) -> tuple[tuple[int, int], ...] | None:
    """A real engine chooses among the splits that it has made."""
    if hello.engine == "emulator":
        return None
    return tuple(pair for pair in hello.partitions if all(pair))


def _has_ended(job: Job) -> bool:
    return job.state not in ("waiting", "running")
