"""The emulated engine, as callers see it: submit, abort, settings, and the passing of time.

The scheduling loop of `engine/loop` runs on an emulated GPU in discrete time. Time is an argument, so that
the same engine runs in virtual time (replay) and in wall-clock time (serving): where the loop would wait for
the device, it is left until the device's clock is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.observing import Hidden
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.book import EmulatedBook
from pdmuxd.engine.emulator.counters import EngineCounters
from pdmuxd.engine.emulator.device import Event
from pdmuxd.engine.emulator.front import Front
from pdmuxd.engine.emulator.info import EmulatedInfo, EmulatedReporter
from pdmuxd.engine.emulator.kv import KvPool
from pdmuxd.engine.emulator.observer import EngineObserver, NullObserver
from pdmuxd.engine.emulator.port import EmulatedPort
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.emulator.steplog import StepLog
from pdmuxd.engine.emulator.streams import EmulatedStreams
from pdmuxd.engine.link.messages import Ack, EngineSettings, IterationRecord, ShadowCounts
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.loop.engine_info import Splits
from pdmuxd.engine.loop.loop import EngineLoop
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.requests import Target


class EmulatedEngine:
    """One emulated GPU serving requests. Not thread-safe; times are seconds and never go back.

    `block_tokens` is the size of a prefix-cache block: 512 for Mooncake traces, 16 when serving. Without
    `keep_step_log`, `token_times` and `step_times` answer only until a request's `on_end` returns, and memory
    is bounded.
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
        listener: EngineObserver = observer or NullObserver()
        self._front: Front | None = None
        if profile.delivery is not None:
            listener = self._front = Front(listener, profile.delivery, profile.noise.stalling())
        self.profile = profile
        self.block_tokens = block_tokens
        self._limits = limits or EngineLimits()
        self._device = device = profile.new_device()
        self._kv = KvPool(profile.kv_capacity_tokens, block_tokens)
        self._book = EmulatedBook(self._kv, listener, StepLog(keep_all=keep_step_log))
        streams = EmulatedStreams(device, profile.device.total_sms)
        self._reporter = EmulatedReporter(listener, keeps_records=step_records)
        self._runtime = PolicyRuntime(EmulatedInfo(profile, self._limits, streams), policy)
        port = EmulatedPort(profile=profile, device=device, streams=streams, kv=self._kv, book=self._book)
        self._loop = EngineLoop(
            port=port,
            streams=streams,
            policy_runtime=self._runtime,
            ledger=self._book,
            reporter=self._reporter,
            clock=lambda: device.now_s,
            sleep=lambda seconds: None,  # noqa: ARG005 - the loop is left until there is something to see
        )
        self._awaited: Event | None = None
        """What the loop waits for on the device."""
        self._rests = True
        """Whether it waits for anything: a request, a setting, or the device."""
        self._alarm_s = math.inf
        """When it looks again though nothing has come."""

    @property
    def limits(self) -> EngineLimits:
        """What it shows to policies as its limits."""
        return self._limits

    @property
    def total_sms(self) -> int:
        return self.profile.device.total_sms

    @property
    def now_s(self) -> float:
        """The instant up to which everything has happened; ahead of what was asked for by what the host takes
        for launching."""
        return self._device.now_s

    @property
    def dropped_records(self) -> int:
        """Step records that nobody drained in time."""
        return self._reporter.dropped_records

    @property
    def table(self) -> PartitionTable:
        """The partition groups of the policy in force."""
        return self._runtime.policy.table

    @property
    def settings_version(self) -> int:
        """Version of the settings in force."""
        return self._runtime.settings_version

    def matched_tokens(self, request: EmulatedRequest) -> int:
        """Tokens of a prompt that are in the prefix cache now."""
        return self._kv.matched_tokens(request.block_keys, request.input_tokens)

    def submit(self, request: EmulatedRequest, now_s: float) -> None:
        """Queue a request. One that could never fit into the KV pool ends at once as FAILED."""
        self.advance(now_s)
        self._book.set_target(request)
        needed, capacity = request.input_tokens + request.output_tokens, self._kv.capacity_tokens
        if needed > capacity:
            request.failure = f"the request needs {needed} KV tokens; the engine holds {capacity}"
            self._book.end(request, Phase.FAILED, now_s)
            return
        if self._front is not None:
            self._front.arrived(now_s)
        self._book.arrive(request)
        self._wake()

    def abort(self, request_id: str, now_s: float) -> bool:
        """End a request wherever it is; False if it is unknown or has ended."""
        self.advance(now_s)
        if not self._book.abort(request_id, self._device.now_s):
            return False
        self._wake()
        return True

    def apply(self, settings: EngineSettings) -> Ack:
        """Put settings in force for waiting, running and later requests; a refusal changes nothing."""
        ack = self._runtime.apply(settings, self._book)
        self._wake()
        return ack

    def apply_settings(
        self,
        *,
        version: int,
        policy: str,
        slos: Mapping[str, Target],
        predictors: Predictors | None = None,
        splits: Splits | None = None,
    ) -> None:
        """Apply settings as `apply` does, from values instead of a message. Raises: PolicyError,
        PartitionError or ProfileError, and changes nothing."""
        self._runtime.use(policy, predictors, splits)
        self._runtime.settings_version = version
        self._runtime.retarget(dict(slos), self._book)
        self._wake()

    def throttle(self, ratio: float) -> None:
        """Make everything take `ratio` times as long from now on, as on a GPU that is too hot."""
        self._device.throttle(ratio)

    @property
    def profile_id(self) -> int:
        """Id of the profile that the predictors in force are from; 0 if they are the emulator's own."""
        return self._runtime.profile_id

    def hidden(self) -> Hidden:
        """Requests that wait and are not shown to the policy, by reason."""
        return self._loop.hidden()

    def shadow_counts(self) -> ShadowCounts | None:
        """How the decisions of the shadow policy differ; None if there is no shadow policy."""
        return self._runtime.shadow_counts()

    @property
    def max_prefill_tokens(self) -> int:
        """New tokens of one prefill batch."""
        return self._limits.max_prefill_tokens

    @property
    def max_decode_bs(self) -> int:
        return self._limits.max_decode_bs

    @property
    def is_idle(self) -> bool:
        return not self._book.requests

    def flush_cache(self) -> bool:
        """Empty the prefix cache; False, and no change, while requests are in progress."""
        if not self.is_idle:
            return False
        self._kv.flush()
        return True

    def next_event_s(self) -> float:
        """When something happens next; infinity if nothing will without a submit."""
        due_s = math.inf if self._front is None else self._front.next_due_s
        return min(self._next_turn_s(), due_s)

    def _next_turn_s(self) -> float:
        awaited = self._awaited
        if not self._rests and (awaited is None or awaited.at_s is not None):
            return self._device.now_s
        return min(self._device.next_done_s(), self._alarm_s)

    def advance(self, until_s: float) -> None:
        """Run everything that happens up to `until_s`."""
        self._take_turns(until_s)
        if math.isfinite(until_s):
            self._device.run_to(until_s)
            self._take_turns(until_s)  # what was due a rounding error later is done now
        if self._front is not None:
            self._front.flush(until_s)

    def token_times(self, request: EmulatedRequest) -> NDArray[np.float64]:
        """The instants of all tokens of a request at its client, in seconds."""
        return self.step_times(request) if request.delivered_s is None else np.array(request.delivered_s)

    def step_times(self, request: EmulatedRequest) -> NDArray[np.float64]:
        """The instants at which the scheduler has read them, in seconds."""
        log, batch = self._book.step_log, self._book.batch
        parts: list[NDArray[np.float64]] = []
        for first_s, start, stop in request.segments:
            if first_s is not None:
                parts.append(np.array([first_s]))
            parts.append(np.array(log.between(start, batch.read if stop < 0 else stop)))
        return np.concatenate(parts) if parts else np.empty(0)

    def drain_records(self) -> list[IterationRecord]:
        """The step records since the last call; none unless `step_records` was asked for."""
        pending = self._reporter.records
        records = list(pending or ())
        if pending is not None:
            pending.clear()
        return records

    def counters(self) -> EngineCounters:
        counters, book = self._loop.counters(), self._book
        return EngineCounters(
            elapsed_s=self._device.now_s,
            policy=self._runtime.policy.name,
            settings_version=self.settings_version,
            running=counters.running,
            waiting=counters.waiting,
            prefilling=counters.prefilling,
            kv_used_tokens=counters.kv_capacity_tokens - counters.kv_free_tokens,
            kv_capacity_tokens=counters.kv_capacity_tokens,
            cached_tokens=counters.cached_tokens,
            prompt_tokens=book.prompt_tokens,
            reused_tokens=book.reused_prompt_tokens,
            output_tokens=book.output_tokens,
            steps=counters.steps,
            stalls=counters.stalls,
            host_delays=counters.host_delays,
            switches=counters.switches,
            preemptions=counters.preemptions,
            retractions=book.retractions,
            partition_id=counters.partition_id,
            prefill_sms=counters.prefill_sms,
            decode_sms=counters.decode_sms,
            busy_prefill_sm_s=counters.busy_prefill_sm_s,
            busy_decode_sm_s=counters.busy_decode_sm_s,
        )

    def awaiting_first_token(self) -> Iterator[tuple[str, float, float]]:
        """Tenant, arrival and TTFT target of each request that has no token yet."""
        return self._book.awaiting_first_token()

    def check_integrity(self) -> None:
        """Recount the KV pool; idle, nothing may be held (invariant 8). Raises: EngineInvariantError."""
        self._kv.check_integrity(self._book.holdings())
        if self.is_idle and (self._book.batch.reused_tokens or self._kv.private_tokens):
            raise EngineInvariantError("tokens are held although no request is left")

    # --- the loop's waiting

    def _wake(self) -> None:
        """Something arrived; a loop that waits for the device sees it in its next turn."""
        if self._awaited is None:
            self._rests = False

    def _take_turns(self, until_s: float) -> None:
        while (at_s := self._next_turn_s()) <= until_s and at_s < math.inf:
            self._device.run_to(at_s)
            if self._awaited is None or self._awaited.at_s is not None:
                self._turn()

    def _turn(self) -> None:
        """Read what the loop has waited for, and go on to the next thing that it waits for."""
        loop, device, before = self._loop, self._device, self._book.changes
        loop.read()
        seen = device.done
        loop.launch()
        self._awaited = loop.next_read
        self._alarm_s = math.inf
        # A turn that launched, read or merged something is followed by the next, and one that took so long
        # that the device has done something meanwhile; else there is nothing to do until something comes.
        has_news = loop.goes_on or self._book.changes != before or device.done != seen
        self._rests = self._awaited is None and not has_news
        if self._rests:
            self._rest()

    def _rest(self) -> None:
        device, alarm_s = self._device, self._loop.wake_at_s
        if alarm_s is not None and alarm_s > device.now_s:
            self._alarm_s = alarm_s
        elif self._book.requests and not (device.decode.is_busy or device.prefill.is_busy):
            raise EngineInvariantError("the policy left the device idle while requests wait")
