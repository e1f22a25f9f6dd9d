"""Rank 0's part of a turn: notice what is done, look, ask the policy, say which streams that means."""

from __future__ import annotations

from pdmuxd.engine.core.types import Decision, Mode
from pdmuxd.engine.sglang.facts import EngineFacts
from pdmuxd.engine.sglang.loop.feasible import feasible
from pdmuxd.engine.sglang.loop.launches import Launches
from pdmuxd.engine.sglang.loop.results import Results
from pdmuxd.engine.sglang.loop.turn import Turn
from pdmuxd.engine.sglang.loop.view import View
from pdmuxd.engine.sglang.port import EnginePort
from pdmuxd.engine.sglang.prefill import PrefillStage
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.steering import Steering


class Planner:
    """Makes a Turn at each safe point."""

    def __init__(
        self,
        *,
        port: EnginePort,
        stage: PrefillStage,
        ledger: Ledger,
        steering: Steering,
        facts: EngineFacts,
        view: View,
        results: Results,
        launches: Launches,
    ) -> None:
        self._port = port
        self._stage = stage
        self._ledger = ledger
        self._steering = steering
        self._facts = facts
        self._view = view
        self._results = results
        self._launches = launches

    def plan(self, now_s: float) -> Turn:
        """What is done is collected here already, so that the decision is about what is left."""
        stage, steering = self._stage, self._steering
        stage.collect()
        finish = stage.is_done
        dropped = tuple(batch.batch_id for batch in stage.abandoned())
        self._results.collect(Turn(finish=finish, dropped=dropped))
        if steering.is_changing and not self._view.is_prefilling:
            steering.change()
        if not self._view.has_work:
            return Turn(finish=finish, dropped=dropped)
        decision = self._decide(now_s)
        looked_up = decision.admit
        if self._ledger.look_up(looked_up):
            # What they share with the cache came or went while they waited: decide on what is true now.
            decision = self._decide(now_s)
        if decision.demote:
            self._ledger.demote(decision.demote)
        return Turn(
            finish=finish,
            dropped=dropped,
            looked_up=looked_up,
            decision=decision,
            stream_group=self._stream_group(decision),
        )

    def _decide(self, now_s: float) -> Decision:
        obs = self._view.observe(
            now_s,
            last_token_s=self._results.last_token_s,
            assumed_done_turn=self._launches.assumed_done_turn,
        )
        return feasible(self._steering.decide(obs), obs, self._port.state.layers)

    def _stream_group(self, decision: Decision) -> int:
        """Fused steps and decode by itself run on all SMs, on the decode stream of the last group."""
        if decision.mode is Mode.FUSED:
            return self._facts.table.decode_only
        if decision.mode is Mode.IDLE:
            return self._port.stream_group
        return self._steering.groups[decision.group]
