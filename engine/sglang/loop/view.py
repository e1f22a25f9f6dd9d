"""What a policy sees of the engine at a safe point; nothing is changed by looking."""

from __future__ import annotations

from pdmuxd.engine.core.types import (
    EngineLimits,
    Observation,
    PrefillMode,
    PrefillShape,
    PrefillView,
)
from pdmuxd.engine.sglang.decode import DecodeStage
from pdmuxd.engine.sglang.port import EngineState
from pdmuxd.engine.sglang.prefill import PrefillStage
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.steering import Steering


class View:
    """Builds observations."""

    def __init__(
        self,
        *,
        state: EngineState,
        decode: DecodeStage,
        prefill: PrefillStage,
        ledger: Ledger,
        steering: Steering,
        limits: EngineLimits,
    ) -> None:
        self._state = state
        self._decode = decode
        self._prefill = prefill
        self._ledger = ledger
        self._steering = steering
        self._limits = limits

    @property
    def has_work(self) -> bool:
        """Whether there is anything to decide about."""
        state = self._state
        return bool(state.waiting or state.running or self.is_prefilling)

    @property
    def is_prefilling(self) -> bool:
        """Whether a prefill is under way, layer by layer or in chunks."""
        return bool(self._state.chunked_request is not None or self._prefill.members())

    def observe(self, now_s: float) -> Observation:
        """The engine at this moment. See `PrefillStage.view` for what is assumed to be done."""
        state, prefill, step = self._state, self._prefill, self._decode.in_flight
        hidden = self._steering.is_changing
        return Observation(
            now_s=now_s,
            group=self._steering.group,
            decode=state.decode_shape(),
            tbt_target_s=self._ledger.tbt_target_s(state.running),
            last_token_s=self._decode.last_token_s,
            prefill=chunked_prefill(state, self._ledger) or prefill.view(prefill.running, in_flight=step),
            preempted=prefill.view(prefill.preempted, in_flight=step),
            waiting=() if hidden else self._ledger.window(state.waiting, self._limits.waiting_window),
            waiting_count=0 if hidden else len(state.waiting),
            kv_free_tokens=state.kv_free_tokens,
            limits=self._limits,
            settings_version=self._steering.settings_version,
        )


def chunked_prefill(state: EngineState, ledger: Ledger) -> PrefillView | None:
    """The prefill that SGLang's mixed chunks are working on. Its launched chunks count as done: fused
    steps follow each other on one stream."""
    request = state.chunked_request
    tracked = ledger.get(request.rid) if request is not None else None
    if tracked is None or tracked.entry is None:
        return None
    entry = tracked.entry
    shape = PrefillShape.of([(entry.new_tokens, entry.reused_tokens)])
    return PrefillView(
        batch_id=0,
        mode=PrefillMode.CHUNKED,
        requests=(entry,),
        shape=shape,
        earliest_deadline_s=entry.deadline_s,
        done_tokens=min(max(0, request.extend_end - entry.reused_tokens), entry.new_tokens - 1),
    )
