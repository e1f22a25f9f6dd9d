"""Carrying a decision out: decode or a fused step first, then prefill layers beside it. The same on every
rank, in the same order."""

from __future__ import annotations

from collections.abc import Callable

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.fusing import chunk_lengths
from pdmuxd.engine.core.types import Decision, Mode, PrefillShape, PrefillView
from pdmuxd.engine.sglang.loop.results import Results
from pdmuxd.engine.sglang.loop.turn import Turn
from pdmuxd.engine.sglang.loop.view import View
from pdmuxd.engine.sglang.port import EnginePort, LaunchedStep
from pdmuxd.engine.sglang.prefill import PrefillStage
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.steering import Steering
from pdmuxd.engine.sglang.steps import StepMeter
from pdmuxd.engine.sglang.streams.base import DeviceStreams


class Launches:
    """What goes to the device."""

    def __init__(
        self,
        *,
        port: EnginePort,
        streams: DeviceStreams,
        stage: PrefillStage,
        ledger: Ledger,
        steering: Steering,
        meter: StepMeter,
        view: View,
        results: Results,
        now_s: Callable[[], float],
    ) -> None:
        self._port = port
        self._streams = streams
        self._stage = stage
        self._ledger = ledger
        self._steering = steering
        self._meter = meter
        self._view = view
        self._results = results
        self._now_s = now_s
        self._turns = 0
        self.assumed_done_turn = -1
        """The last turn, if a step was launched in it: the next decision is about what comes after that
        step, when the layers beside it are done as well."""

    def carry_out(self, turn: Turn) -> bool:
        """Whether a decode or fused step was launched."""
        self._turns += 1
        decision = turn.decision
        launched = False
        if decision is not None and decision.mode is not Mode.IDLE:
            if turn.stream_group != self._port.stream_group:
                self._port.use_group(turn.stream_group)
                self._meter.switches += 1
            self._steering.group = decision.group
            launched = self._fuse(decision) if decision.mode is Mode.FUSED else self._split(decision)
        if not launched:
            self._port.decode.nothing_launched()
        self.assumed_done_turn = self._turns if launched else -1
        return launched

    def group_sms(self) -> tuple[int, int]:
        """SMs of prefill and decode in the group in force."""
        group = self._streams.groups[self._port.stream_group]
        return group.prefill_sms, group.decode_sms

    def rest_of_prefill(self) -> None:
        """All layers that are left of the running prefill, or of the one set aside."""
        if self._stage.running is None:
            self._stage.resume()
        running = self._stage.running
        left = self._port.state.layers - (running.layers_launched if running is not None else 0)
        if left:
            self._stage.launch(left, self.group_sms()[0], self._turns)

    def forget(self) -> None:
        """Everything launched was drained."""
        self._port.decode.nothing_launched()
        self.assumed_done_turn = -1

    # --- decode and prefill on two partitions

    def _split(self, decision: Decision) -> bool:
        stage = self._stage
        if decision.preempt:
            stage.preempt()
            self._meter.preemptions += 1
        if decision.resume:
            stage.resume()
        if decision.admit:
            self._start_prefill(decision)
        beside = stage.running
        launched = None
        if decision.decode_steps and self._port.state.running:
            shape = self._port.state.decode_shape()
            launched = self._port.decode.launch_decode()
            if launched is not None:
                prefill = beside.shape if beside is not None else None
                self._results.expect(
                    self._meter.launched(launched, decision, self.group_sms(), shape, prefill)
                )
        self._launch_layers(decision)
        return launched is not None

    def _start_prefill(self, decision: Decision) -> None:
        batch = self._port.prefill.form_prefill(decision.admit)
        if batch is not None:
            entries = self._ledger.admitted((request.rid for request in batch.reqs), self._now_s())
            self._stage.start(batch, entries, self._now_s())
        elif decision.preempt:
            self._stage.resume()

    def _launch_layers(self, decision: Decision) -> None:
        """Layers beside the step just launched; for several steps ahead, this step's share of them."""
        running = self._stage.running
        if running is None or not decision.prefill_layers or self._port.prefill.is_abandoned(running.batch):
            return
        layers = -(-decision.prefill_layers // max(1, decision.decode_steps))
        layers = min(layers, self._port.state.layers - running.layers_launched)
        if layers:
            self._stage.launch(
                layers,
                self.group_sms()[0],
                self._turns,
                alone=not self._port.state.running,
                predicted_s=decision.numbers.predicted_prefill_s,
            )

    # --- one batch of both

    def _fuse(self, decision: Decision) -> bool:
        if self._stage.members():
            raise EngineInvariantError("a fused step was decided while a layer-wise prefill is under way")
        port = self._port
        shape = port.state.decode_shape()
        if not decision.token_budget:
            launched = port.decode.launch_decode() if port.state.running else None
            prefill = None
        else:
            chunked = self._view.chunked()
            launched = port.decode.launch_fused(decision.admit, decision.token_budget)
            prefill = self._fused_prefill(launched, chunked, decision)
        if launched is None:
            return False
        self._results.expect(self._meter.launched(launched, decision, self.group_sms(), shape, prefill))
        return True

    def _fused_prefill(
        self, launched: LaunchedStep | None, chunked: PrefillView | None, decision: Decision
    ) -> PrefillShape | None:
        """The prompt tokens that a fused step really holds; notes who was admitted."""
        if launched is None:
            return None
        waiting = {request.rid for request in self._port.state.waiting}
        admitted = [i for i in decision.admit if i not in waiting and self._ledger.get(i) is not None]
        entries = self._ledger.admitted(admitted, self._now_s())
        left = decision.token_budget - launched.decoding
        lengths = list(chunk_lengths(chunked, entries, left))
        return PrefillShape.of(lengths) if lengths else None
