"""What a policy sees of the engine at a safe point; nothing is changed by looking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.observing import Hidden, hidden, observation
from pdmuxd.engine.core.types import (
    DecodeShape,
    EngineLimits,
    Observation,
    PrefillMode,
    PrefillShape,
    PrefillView,
)
from pdmuxd.engine.loop.decode import DecodeStage
from pdmuxd.engine.loop.decode_turns import DecodeTurns
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.port import EngineState
from pdmuxd.engine.loop.prefill import PrefillStage
from pdmuxd.engine.loop.requests import RequestBook

SHORT_SLOTS_SHARE = 1 / 16
"""Of the decode slots: with no more left, who gets them is a question of fairness."""


class View:
    """Builds observations."""

    def __init__(
        self,
        *,
        state: EngineState,
        turns: DecodeTurns,
        decode: DecodeStage,
        prefill: PrefillStage,
        ledger: RequestBook,
        policy_runtime: PolicyRuntime,
        limits: EngineLimits,
    ) -> None:
        self._state = state
        self._turns = turns
        self._decode = decode
        self._prefill = prefill
        self._ledger = ledger
        self._policy_runtime = policy_runtime
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

    @property
    def is_ending(self) -> bool:
        """Whether the prefill that runs is assumed to be done by the step that is decided about, its SMs free
        for those who wait. Its last layers were launched beside the step in flight, none before them is left;
        or they were launched earlier."""
        prefill, step = self._prefill, self._decode.in_flight
        running = prefill.running
        if running is None or running.result is None or step is None or not self._state.waiting:
            return False
        if prefill.ending is not None or prefill.set_aside or self._policy_runtime.is_changing:
            return False
        quanta = running.quanta
        return not quanta or quanta[0].colocated_step is step or quanta[-1].colocated_step is not step

    def observe(self, now_s: float) -> Observation:
        """The engine at this moment. See `PrefillStage.view` for what is assumed to be done."""
        state, prefill, step = self._state, self._prefill, self._decode.in_flight
        batch = prefill.running or prefill.ending
        return self._observation(
            now_s,
            state.decode_shape(),
            prefill=chunked_prefill(state, self._ledger)
            or (prefill.view(batch, in_flight=step) if batch is not None else None),
            set_aside=tuple(prefill.view(unit, in_flight=step) for unit in reversed(prefill.set_aside)),
        )

    def observe_behind(self, now_s: float) -> Observation:
        """Observe as if the prefill that `is_ending` were done, and its requests decoded."""
        running = self._prefill.running
        if running is None:
            raise EngineInvariantError("no prefill is ending")
        decode, joining = self._state.decode_shape(), running.batch.reqs
        contexts = [entry.new_tokens + entry.reused_tokens for entry in running.entries]
        grown = DecodeShape(
            bs=decode.bs + len(joining),
            reused_tokens=decode.reused_tokens + sum(contexts),
            max_context_tokens=max(decode.max_context_tokens, *contexts),
        )
        names = [entry.request_id for entry in running.entries]
        return self._observation(now_s, grown, joining, list(zip(names, contexts, strict=True)))

    def hidden(self) -> Hidden:
        """Requests that wait and are not shown to the policy now, or may not be begun."""
        state, runtime, prefill = self._state, self._policy_runtime, self._prefill
        is_chunked = state.chunked_request is not None
        return hidden(
            () if runtime.is_changing else self._ledger.window(self._limits.waiting_window),
            queue_length=len(state.waiting),
            limits=self._limits,
            denied=runtime.state.denied.held(state.kv_free_tokens, is_chunked=is_chunked),
            is_layerwise=bool(prefill.set_aside) or (bool(prefill.members()) and not is_chunked),
            is_changing=runtime.is_changing,
        )

    def _observation(
        self,
        now_s: float,
        decode: DecodeShape,
        joining: Sequence[Any] = (),
        joining_contexts: Sequence[tuple[str, int]] = (),
        *,
        prefill: PrefillView | None = None,
        set_aside: tuple[PrefillView, ...] = (),
    ) -> Observation:
        state, hidden = self._state, self._policy_runtime.hides_queue(now_s)
        kv_free_tokens = state.kv_free_tokens
        last_token_s = self._policy_runtime.state.last_token_s
        obs = observation(
            now_s=now_s,
            partition_id=self._policy_runtime.state.partition_id,
            decode=decode,
            tbt_target_s=self._ledger.tbt_target_s(state.running, joining),
            last_token_s=last_token_s,
            prefill=prefill,
            set_aside=set_aside,
            queue=() if hidden else self._ledger.window(self._limits.waiting_window),
            queue_length=len(state.waiting),
            is_queue_hidden=hidden,
            denied=self._policy_runtime.state.denied.hidden(
                kv_free_tokens, is_chunked=state.chunked_request is not None
            ),
            kv_free_tokens=kv_free_tokens,
            limits=self._limits,
            settings_version=self._policy_runtime.settings_version,
            decoding=self._turns.decoding(now_s, last_token_s, joining_contexts),
        )
        waiting = obs.waiting
        if obs.are_slots_short:
            tenants = {
                r.tenant for requests in (waiting, *(u.requests for u in obs.under_way)) for r in requests
            }
            answers = self._ledger.answers.usual(sorted(tenants))
            obs = replace(obs, answer_tokens=answers)
        most = self._limits.max_decode_bs
        if most - obs.slots_taken > SHORT_SLOTS_SHARE * most or len({r.tenant for r in waiting}) < 2:
            return obs
        return replace(obs, slots_held=tuple(self._ledger.slots_held().items()))


def chunked_prefill(state: EngineState, ledger: RequestBook) -> PrefillView | None:
    """The prefill that fused steps are working on. Its launched chunks count as done: fused
    steps follow each other on one stream."""
    request = state.chunked_request
    entry = ledger.entry(request) if request is not None else None
    if entry is None:
        return None
    shape = PrefillShape.of([(entry.new_tokens, entry.reused_tokens)])
    return PrefillView(
        batch_id=0,
        mode=PrefillMode.CHUNKED,
        requests=(entry,),
        shape=shape,
        earliest_deadline_s=entry.deadline_s,
        done_tokens=min(max(0, state.chunked_end - entry.reused_tokens), entry.new_tokens - 1),
    )
