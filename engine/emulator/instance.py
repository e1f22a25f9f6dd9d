"""One instance of a fleet: an emulated engine, its backlog as a router sees it, and its pressure signals."""

from __future__ import annotations

from collections.abc import Iterable

from pdmuxd.engine.core.pressure import InstanceSignals, Pool
from pdmuxd.engine.core.types import Decision, EngineLimits
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.observer import EngineObserver
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.requests import EmulatedRequest


class FleetInstance:
    """One engine with what the router knows of it; it is the engine's observer and passes all on."""

    def __init__(
        self,
        profile: Profile,
        policy: str,
        observer: EngineObserver,
        limits: EngineLimits | None,
        block_tokens: int,
    ) -> None:
        self.pool = Pool.LONG
        self.engine = EmulatedEngine(
            profile=profile, policy=policy, observer=self, limits=limits, block_tokens=block_tokens
        )
        self.queued_s = 0.0
        """Predicted prefill seconds of requests without a first token."""
        self.open = 0
        self._observer = observer
        self._profile = profile
        self._waiting: dict[str, tuple[EmulatedRequest, float]] = {}
        """With what their prefill was predicted to take when they came."""
        self._first_tokens = self._late = 0
        self._busy_sm_s = 0.0
        self._asked_s = 0.0

    def load_with(self, request: EmulatedRequest) -> tuple[float, int]:
        """How loaded it would be with a request: first prefill to do, then requests in progress."""
        return (self.queued_s + self._service_s(request), self.open)

    def new_tokens(self, request: EmulatedRequest) -> int:
        """Prompt tokens that it has not cached."""
        return request.input_tokens - self.engine.matched_tokens(request)

    def submit(self, request: EmulatedRequest, now_s: float) -> None:
        self.open += 1
        service_s = self._service_s(request)
        self._waiting[request.request_id] = request, service_s
        self.queued_s += service_s
        self.engine.submit(request, now_s)

    def signals(self, now_s: float) -> InstanceSignals:
        """What happened since the last call."""
        counters = self.engine.counters()
        busy_sm_s = counters.busy_prefill_sm_s + counters.busy_decode_sm_s
        available_sm_s = (now_s - self._asked_s) * self._profile.device.total_sms
        overdue = sum(r.arrival_s + r.ttft_target_s < now_s for r, _ in self._waiting.values())
        signals = InstanceSignals(
            queue_s=self.queued_s,
            late_ratio=(self._late + overdue) / max(1, self._first_tokens + len(self._waiting)),
            busy_ratio=(busy_sm_s - self._busy_sm_s) / available_sm_s if available_sm_s > 0.0 else 0.0,
        )
        self._first_tokens = self._late = 0
        self._busy_sm_s, self._asked_s = busy_sm_s, now_s
        return signals

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        """Count it as met or late."""
        if self._settle(request):
            self._first_tokens += 1
            self._late += now_s > request.arrival_s + request.ttft_target_s
        self._observer.on_first_token(request, now_s)

    def on_decode_tokens(self, requests: Iterable[EmulatedRequest], now_s: float) -> None:
        self._observer.on_decode_tokens(requests, now_s)

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        self._settle(request)
        self.open -= 1
        self._observer.on_end(request, now_s)

    def on_step(self, decision: Decision, start_s: float, end_s: float) -> None:
        self._observer.on_step(decision, start_s, end_s)

    def _settle(self, request: EmulatedRequest) -> bool:
        """Take a request off the backlog, once."""
        waited = self._waiting.pop(request.request_id, None)
        if waited is None:
            return False
        left_s = self.queued_s - waited[1]
        self.queued_s = max(0.0, left_s) if self._waiting else 0.0
        return True

    def _service_s(self, request: EmulatedRequest) -> float:
        """What is cached on this instance counts as history."""
        new_tokens, sms = self.new_tokens(request), self._profile.device.total_sms
        return self._profile.predictor.request_s(new_tokens, request.input_tokens - new_tokens, sms)
