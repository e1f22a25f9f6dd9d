"""The emulated engine, as callers see it: submit, abort, settings, and the passing of time.

A discrete-event machine around the emulated device, driven by a policy of the core. Time is an argument,
so that the same engine runs in virtual time (replay) and in wall-clock time (serving).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.host import Host
from pdmuxd.engine.emulator.machine import Machine
from pdmuxd.engine.emulator.observer import EngineObserver, NullObserver
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase, TenantTarget
from pdmuxd.engine.emulator.telemetry import EngineCounters
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.link.predictors import Predictors


class EmulatedEngine:
    """One emulated GPU serving requests. Not thread-safe; times are seconds and never go back.

    `block_tokens` is the size of a prefix-cache block: 512 for Mooncake traces, 16 when serving. Without
    `keep_step_log`, `token_times` answers only until a request's `on_end` returns, and memory is bounded.
    Raises: PolicyError, PartitionError from the constructor.
    """

    def __init__(
        self,
        *,
        profile: Profile,
        policy: str,
        limits: EngineLimits | None = None,
        observer: EngineObserver | None = None,
        step_records: bool = False,
        block_tokens: int = 16,
        keep_step_log: bool = True,
    ) -> None:
        self.profile = profile
        self._predictors: Predictors | None = None
        self._partitions: tuple[tuple[int, int], ...] | None = None
        self.block_tokens = block_tokens
        self._machine = Machine(
            profile=profile,
            policy=policy,
            limits=limits or EngineLimits(),
            observer=observer or NullObserver(),
            step_records=step_records,
            block_tokens=block_tokens,
            keep_step_log=keep_step_log,
        )
        self._host = Host(self._machine)

    @property
    def total_sms(self) -> int:
        """The SMs of the device."""
        return self.profile.device.total_sms

    @property
    def now_s(self) -> float:
        """The instant up to which everything has happened."""
        return self._machine.now_s

    @property
    def dropped_records(self) -> int:
        """Step records that nobody drained in time."""
        return self._machine.dropped_records

    @property
    def table(self) -> PartitionTable:
        """The partition groups of the policy in force."""
        return self._machine.policy.table

    def submit(self, request: EmulatedRequest, now_s: float) -> None:
        """Queue a request. One that could never fit into the KV pool ends at once as FAILED."""
        self.advance(now_s)
        m = self._machine
        m.set_target(request)
        needed = request.input_tokens + request.output_tokens
        if needed > m.kv.capacity_tokens:
            request.failure = f"the request needs {needed} KV tokens; the engine holds {m.kv.capacity_tokens}"
            m.end(request, Phase.FAILED)
            return
        m.requests[request.request_id] = request
        m.queue.add(request, m.entry(request))
        self._host.wake()

    def abort(self, request_id: str, now_s: float) -> bool:
        """End a request wherever it is; False if it is unknown or has ended."""
        self.advance(now_s)
        m = self._machine
        request = m.requests.get(request_id)
        if request is None:
            return False
        if m.queue.get(request_id) is not None:
            m.queue.remove(request_id)
        elif (member := m.decode.members.get(request_id)) is not None:
            m.decode.leave(member)
            m.kv.release(member.holding)
        elif (dropped := m.prefill.drop(request)) is not None:
            m.kv.release(dropped.holding)
        m.end(request, Phase.ABORTED)
        self._host.wake()
        return True

    def apply_settings(
        self,
        *,
        version: int,
        policy: str,
        slos: Mapping[str, TenantTarget],
        predictors: Predictors | None = None,
        partitions: tuple[tuple[int, int], ...] | None = None,
    ) -> None:
        """Put targets in force for every request that has not ended; a new policy follows at a safe point.

        Predictors that are the same as before leave what was learned since as it is.
        Raises: PolicyError, PartitionError or ProfileError, and changes nothing.
        """
        m = self._machine
        context = m.context
        if (predictors, partitions) != (self._predictors, self._partitions):
            context = self.profile.context(predictors, partitions)
        continues = (
            predictors is not None
            and self._predictors is not None
            and predictors.profile_id == self._predictors.profile_id
        )
        m.use_context(policy, context, continues=continues)
        self._predictors, self._partitions = predictors, partitions
        m.targets = dict(slos)
        m.settings_version = version
        m.retarget()
        self._host.wake()

    def throttle(self, ratio: float) -> None:
        """From now on everything takes `ratio` times as long, as on a GPU that is too hot."""
        self._machine.device.throttle(ratio)

    @property
    def profile_id(self) -> int:
        """Of the predictors in force; 0 if they are the profile's own."""
        return self._predictors.profile_id if self._predictors is not None else 0

    @property
    def max_prefill_tokens(self) -> int:
        """New tokens of one prefill batch."""
        return self._machine.limits.max_prefill_tokens

    @property
    def max_decode_bs(self) -> int:
        """The largest decode batch."""
        return self._machine.limits.max_decode_bs

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return not self._machine.requests

    def flush_cache(self) -> bool:
        """Empty the prefix cache; False, and no change, while requests are in progress."""
        if self._machine.requests:
            return False
        self._machine.kv.flush()
        return True

    def next_event_s(self) -> float:
        """When something happens next; infinity if nothing will without a submit."""
        return self._host.next_event_s()

    def advance(self, until_s: float) -> None:
        """Run everything that happens up to `until_s`."""
        while (event_s := self._host.next_event_s()) <= until_s:
            self._machine.pass_time(event_s)
            self._host.handle()
        self._machine.pass_time(until_s)

    def token_times(self, request: EmulatedRequest) -> NDArray[np.float64]:
        """The instants of all tokens of a request, in seconds."""
        m = self._machine
        parts: list[NDArray[np.float64]] = []
        for first_s, start, stop in request.segments:
            parts.append(np.array([first_s]))
            parts.append(np.array(m.step_log.between(start, stop if stop >= 0 else m.decode.steps)))
        return np.concatenate(parts) if parts else np.empty(0)

    def drain_records(self) -> list[IterationRecord]:
        """The step records since the last call; none unless `step_records` was asked for."""
        pending = self._machine.records
        records = list(pending or ())
        if pending is not None:
            pending.clear()
        return records

    def counters(self) -> EngineCounters:
        """Totals and present values."""
        m, totals = self._machine, self._machine.totals
        partition = self.table.groups[m.partition_id]
        return EngineCounters(
            elapsed_s=m.now_s,
            policy=m.policy.name,
            settings_version=m.settings_version,
            running=len(m.decode.members),
            waiting=len(m.queue),
            prefilling=len(m.prefill.members()),
            kv_used_tokens=m.kv.capacity_tokens - m.kv.available_tokens,
            kv_capacity_tokens=m.kv.capacity_tokens,
            cached_tokens=m.kv.tree_tokens,
            prompt_tokens=totals.prompt_tokens,
            reused_tokens=totals.reused_tokens,
            output_tokens=totals.output_tokens,
            steps=totals.steps,
            switches=totals.switches,
            preemptions=totals.preemptions,
            retractions=totals.retractions,
            partition_id=m.partition_id,
            prefill_sms=partition.prefill_sms,
            decode_sms=partition.decode_sms,
            busy_prefill_sm_s=m.device.prefill.busy_sm_s + totals.fused_prefill_sm_s,
            busy_decode_sm_s=m.device.decode.busy_sm_s - totals.fused_prefill_sm_s,
        )

    def check_integrity(self) -> None:
        """Recount the KV pool; idle, nothing may be held (invariant 8). Raises: EngineInvariantError."""
        m = self._machine
        held = [a.holding for a in m.prefill.members()]
        held.extend(m.decode.settled_holding(member) for member in m.decode.members.values())
        m.kv.check_integrity(held)
        if not m.requests and (m.decode.reused_tokens or m.kv.private_tokens):
            raise EngineInvariantError("tokens are held although no request is left")
