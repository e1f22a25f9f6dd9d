"""Carrying a decision out: decode or a fused step first, then prefill layers beside it. The same on every
rank, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.policies.fusedsteps import chunk_lengths
from pdmuxd.engine.core.types import Decision, Mode, PrefillShape, PrefillView, WaitingRequest
from pdmuxd.engine.loop.decode import DecodeStage, Step
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.port import EnginePort
from pdmuxd.engine.loop.prefill import PrefillStage
from pdmuxd.engine.loop.requests import RequestBook
from pdmuxd.engine.loop.step_plan import StepPlan
from pdmuxd.engine.loop.view import chunked_prefill

QUANTUM_LAYERS = 2
"""Launched between two looks whether tokens have come: 1 to 2 ms of the host's time (32 layers of Llama-8B
take 18 ms, and up to 40 for stretches of a tenth of a second; each quantum costs 0.02 ms; one H200, SGLang
0.5.23, 2026-11-22)."""
SHARED_QUANTUM_LAYERS = 4
"""The same where several ranks launch: the others ask the first one, which takes a message each time. Two
H200s that launched 15 layers at once were 13 ms late with a decode step of 7 (Llama-8B, 2026-11-22)."""


class Launches:
    """What goes to the device."""

    def __init__(
        self,
        *,
        port: EnginePort,
        decode: DecodeStage,
        prefill: PrefillStage,
        ledger: RequestBook,
        policy_runtime: PolicyRuntime,
        now_s: Callable[[], float],
    ) -> None:
        self._port = port
        self._decode = decode
        self._prefill = prefill
        self._ledger = ledger
        self._policy_runtime = policy_runtime
        self._now_s = now_s
        self.switches = 0

    def carry_out(self, plan: StepPlan) -> bool:
        """Whether a decode or fused step was launched."""
        decision, step = plan.decision, None
        if plan.refused:
            self._ledger.refused(plan.refused, self._now_s())
            self._port.refuse(plan.refused)
        if decision is not None and decision.mode is not Mode.IDLE:
            if plan.stream_group != self._port.stream_group:
                self._port.use_group(plan.stream_group)
                self.switches += 1
            self._policy_runtime.state.partition_id = decision.partition_id
            step = self._fuse(plan, decision) if decision.mode.is_one_batch else self._split(plan, decision)
        if step is None:
            self._decode.nothing_launched()
        else:
            step.decided_by = self._policy_runtime.policy
            ledger = self._ledger
            ledger.answers.decoded(step.decode.bs, ledger.slots_held(), self._now_s())
        return step is not None

    # --- decode and prefill on two partitions

    def _split(self, plan: StepPlan, decision: Decision) -> Step | None:
        prefill = self._prefill
        if plan.behind:
            prefill.let_end()
        if decision.preempt:
            prefill.preempt()
        if decision.resume:
            prefill.resume()
        # What is formed behind a step's launch waits on the device until that step begins.
        if decision.admit:
            self._start_prefill(decision)
        step = self._decode.launch(decision, plan.sits_out) if decision.decode_steps else None
        if step is not None and prefill.running is not None:
            step.prefill = prefill.running.shape
        self._launch_layers(decision, step)
        return step

    def _start_prefill(self, decision: Decision) -> None:
        batch = self._port.prefill.form_prefill(decision.admit, decision.prefill_graph)
        if batch is not None:
            entries = self._admitted(request.rid for request in batch.reqs)
            self._prefill.start(batch, entries, decision.slices)
        elif self._prefill.set_aside:
            self._prefill.resume()  # else nobody gives KV back

    def _launch_layers(self, decision: Decision, step: Step | None) -> None:
        """Layers beside the step just launched; for several steps ahead, this step's share of them.

        They stop when tokens have come: those are passed on and the next step is launched first. What is
        left of the layers is for the next turn to decide. They do not begin when tokens came while their
        batch was formed, which takes as long as launching many.
        """
        running, state = self._prefill.running, self._port.state
        if running is None or not decision.prefill_layers or self._port.prefill.is_abandoned(running.batch):
            return
        at_once = step is None or decision.prefill_graph is not None
        share = 1 if decision.prefill_graph is not None else max(1, decision.decode_steps)
        layers = -(-decision.prefill_layers // share)
        left = min(layers, self._prefill.layers_left)
        quantum = QUANTUM_LAYERS if state.tp_size == 1 else SHARED_QUANTUM_LAYERS
        if not at_once and decision.admit and self._tokens_have_come():
            return
        while left:
            launched = left if at_once else min(left, quantum)
            self._prefill.launch(
                launched,
                colocated_step=step,
                alone=not state.running,
                decision=decision,
            )
            left -= launched
            if step is not None:
                step.prefill_layers += running.whole_layers(launched)
            if step is not None and left and self._tokens_have_come():
                return

    def _tokens_have_come(self) -> bool:
        """Rank 0's answer: each would see them at another moment, and all launch the same."""
        return bool(self._port.agree(self._decode.has_news))

    # --- one batch of both

    def _fuse(self, plan: StepPlan, decision: Decision) -> Step | None:
        if self._prefill.members():
            raise EngineInvariantError("a fused step was decided while a layer-wise prefill is under way")
        if not decision.token_budget:
            return self._decode.launch(decision, plan.sits_out)
        state, ledger = self._port.state, self._ledger
        request = state.chunked_request
        chunked = None if decision.preempt else chunked_prefill(state, ledger)
        begins = not state.running
        step = self._decode.launch_fused(decision, plan.sits_out)
        if (decision.preempt or decision.chunk_last) and request is not None:
            denied = frozenset(decision.admit).intersection(state.still_waiting(decision.admit))
            if len(denied) == len(decision.admit):
                self._policy_runtime.state.denied.note(denied, state.kv_free_tokens)
        if step is not None:
            if request is not None and ledger.entry(request) is None:
                chunked = None  # it was aborted while the step was formed
            step.prefill = self._fused_prefill(step, chunked)
            if begins:
                self._policy_runtime.state.last_token_s = self._now_s()
        return step

    def _fused_prefill(self, step: Step, chunked: PrefillView | None) -> PrefillShape | None:
        """The prompt tokens that a fused step really holds; notes who was admitted."""
        decision = step.decision
        waiting = self._port.state.still_waiting(decision.admit)
        entries = self._admitted(i for i in decision.admit if i not in waiting)
        tokens, chunk_last = step.launched.prompt_tokens, decision.chunk_last
        lengths = chunk_lengths(chunked, entries, tokens, chunk_last=chunk_last)
        return PrefillShape.of(lengths) if lengths else None

    def _admitted(self, request_ids: Iterable[str]) -> tuple[WaitingRequest, ...]:
        now_s = self._now_s()
        entries = self._ledger.admitted(request_ids, now_s)
        self._ledger.answers.begun(entries, now_s)
        return entries
