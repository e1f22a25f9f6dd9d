"""Layer-wise prefill on the device: one batch that runs, a stack of those set aside (invariant 3), and at
most one that ends ahead of the one that runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import Decision, PrefillMode, PrefillShape, PrefillView, WaitingRequest
from pdmuxd.engine.loop.decode import Step
from pdmuxd.engine.loop.port import EnginePort
from pdmuxd.engine.loop.streams import DeviceStreams


@dataclass(slots=True, eq=False)
class Quantum:
    """Layers that were launched together."""

    layers: int
    sms: int
    colocated_step: Step | None
    """The step that was launched in the same turn."""
    start: Any
    end: Any
    decision: Decision | None
    """What they were launched for; None when the loop is drained."""


@dataclass(slots=True, eq=False)
class LayerwiseBatch:
    """A prefill batch, SGLang's and ours."""

    batch_id: int
    batch: Any
    entries: tuple[WaitingRequest, ...]
    shape: PrefillShape
    earliest_deadline_s: float
    slices: int = 1
    """Into how many parts of its tokens each layer is cut; layers here count these."""
    layers_launched: int = 0
    was_preempted: bool = False
    quanta: deque[Quantum] = field(default_factory=deque)
    """Launched and not seen finished, oldest first."""
    device_s: float = 0.0
    """Device time of the quanta seen finished."""
    result: Any = None
    end: Any = None
    """Of the last quantum launched."""
    sms: int = 0
    """Of the last quantum launched."""
    has_one_size: bool = True
    """Whether all quanta ran on the same number of SMs."""
    ran_alone: bool = True
    """Whether all quanta ran on the same SMs with nothing beside them."""
    alone_s: float = 0.0
    """Of `device_s`, the quanta that no step was launched with."""
    alone_decision: Decision | None = None
    """Of the last of those."""
    predicted_s: float | None = None
    """All layers, alone, as predicted when its first layers were launched."""

    def whole_layers(self, launched: int) -> int:
        """How many layers ended with the last so many slices that were launched."""
        return self.layers_launched // self.slices - (self.layers_launched - launched) // self.slices

    @property
    def layers_in_flight(self) -> int:
        """Layers launched and not seen finished."""
        return sum(quantum.layers for quantum in self.quanta)


class PrefillStage:
    """Starts, sets aside, resumes and launches prefill batches."""

    def __init__(self, port: EnginePort, streams: DeviceStreams, *, max_set_aside: int) -> None:
        self._port = port
        self._max_set_aside = max_set_aside
        self._streams = streams
        self._ids = count(1)
        self.ending: LayerwiseBatch | None = None
        """All of its layers were launched, and the running batch behind it."""
        self.running: LayerwiseBatch | None = None
        self.set_aside: list[LayerwiseBatch] = []
        """The one that was set aside last is last, and goes on first."""
        self.preemptions = 0
        self.busy_sm_s = 0.0
        """SM-seconds of the quanta seen finished."""

    def members(self) -> list[LayerwiseBatch]:
        """The batches that hold KV, the one first that ends first."""
        ahead = [batch for batch in (self.ending, self.running) if batch is not None]
        return [*ahead, *reversed(self.set_aside)]

    def start(self, batch: Any, entries: tuple[WaitingRequest, ...], slices: int = 1) -> None:
        """A batch was formed. Raises: EngineInvariantError if another runs."""
        if self.running is not None:
            raise EngineInvariantError("a prefill was started while another runs")
        shape = PrefillShape.of([(entry.new_tokens, entry.reused_tokens) for entry in entries])
        self.running = LayerwiseBatch(
            batch_id=next(self._ids),
            batch=batch,
            entries=entries,
            shape=shape,
            earliest_deadline_s=min(entry.deadline_s for entry in entries),
            slices=slices,
        )

    def let_end(self) -> None:
        """Another batch may be started behind the running one. Raises: EngineInvariantError if layers of it
        are left, or another one ends already."""
        if self.running is None or self.running.result is None or self.ending is not None:
            raise EngineInvariantError("no prefill can be started behind the one that runs")
        self.ending, self.running = self.running, None

    def preempt(self) -> None:
        """Set the running batch aside (invariant 3). Raises: EngineInvariantError if none runs, or as many
        are set aside as may be."""
        if self.running is None or len(self.set_aside) >= self._max_set_aside:
            raise EngineInvariantError("a prefill cannot be preempted now")
        self.running.was_preempted = True
        self.set_aside.append(self.running)
        self.running = None
        self.preemptions += 1

    def resume(self) -> None:
        """Take the batch up again that was set aside last."""
        if not self.set_aside or self.running is not None:
            raise EngineInvariantError("there is no prefill to resume, or another runs")
        self.running = self.set_aside.pop()

    @property
    def layers_left(self) -> int:
        """Layers of the running batch that were not launched."""
        running = self.running
        return 0 if running is None else self._port.state.layers * running.slices - running.layers_launched

    def launch(
        self,
        layers: int,
        *,
        colocated_step: Step | None = None,
        alone: bool = False,
        decision: Decision | None = None,
    ) -> None:
        """Launch layers of the running batch behind what it has in flight."""
        batch = self.running
        if batch is None or layers > self.layers_left:
            raise EngineInvariantError("prefill layers were launched without a batch, or beyond its last")
        sms = self._streams.groups[self._port.stream_group].prefill_sms
        start, end, result = self._port.prefill.launch_layers(batch.batch, layers, batch.slices)
        batch.quanta.append(
            Quantum(
                layers=layers, sms=sms, colocated_step=colocated_step, start=start, end=end, decision=decision
            )
        )
        batch.layers_launched += layers
        batch.result, batch.end = result, end
        batch.has_one_size = batch.has_one_size and batch.sms in (0, sms)
        batch.ran_alone = batch.ran_alone and alone and batch.has_one_size
        batch.sms = sms
        if batch.predicted_s is None and decision is not None:
            batch.predicted_s = decision.numbers.predicted_prefill_s

    def launch_rest(self) -> None:
        """All layers that are left of the running batch, or of the one set aside last, if none ends before
        it."""
        if self.ending is not None:
            return
        if self.running is None:
            self.resume()
        if self.layers_left:
            self.launch(self.layers_left)

    def collect(self) -> None:
        """Notice what the device has finished; never blocks."""
        for batch in self.members():
            while batch.quanta and self._streams.is_done(batch.quanta[0].end):
                self._account(batch, batch.quanta.popleft())

    @property
    def next_done(self) -> LayerwiseBatch | None:
        """The batch that ends next, but for those set aside."""
        return self.ending or self.running

    @property
    def is_done(self) -> bool:
        """Whether that has passed its last layer, as far as `collect` saw."""
        batch = self.next_done
        return batch is not None and batch.result is not None and not batch.quanta

    def wait(self, batch: LayerwiseBatch) -> None:
        """Block until a batch has nothing in flight."""
        if batch.quanta:
            self._streams.wait(batch.quanta[-1].end)
            self.collect()

    def wait_for_next(self) -> LayerwiseBatch:
        """The batch that ends next, nothing of it in flight. Raises: EngineInvariantError if none runs."""
        batch = self.next_done
        if batch is None:
            raise EngineInvariantError("no prefill runs")
        self.wait(batch)
        return batch

    @property
    def last_layer_end(self) -> Any:
        """The event behind the running batch, if its last layer was launched."""
        if self.running is None or self.running.result is None or not self.running.quanta:
            return None
        return self.running.quanta[-1].end

    def wait_for_last_layer(self) -> None:
        """Block until the running batch is done, if its last layer was launched: an ablation of asking."""
        if self.running is not None and self.running.result is not None:
            self.wait(self.running)

    def finish(self, *, hold: bool) -> None:
        """Hand the finished batch over to decode, its first tokens held back or not.

        Raises: EngineInvariantError if it is not finished.
        """
        batch = self.next_done
        if batch is None or batch.result is None:
            raise EngineInvariantError("no prefill is finished")
        self._forget(batch)
        self._port.prefill.finish_prefill(batch.batch, batch.result, batch.end, hold=hold)

    def release_tokens(self) -> None:
        """First tokens that were held back go out."""
        self._port.prefill.release_tokens()

    def abandoned(self) -> list[LayerwiseBatch]:
        """Batches with nothing on the device whose requests were all aborted."""
        return [
            batch
            for batch in self.members()
            if not batch.quanta and self._port.prefill.is_abandoned(batch.batch)
        ]

    def drop(self, batch: LayerwiseBatch) -> None:
        """End an abandoned batch; its KV is given back, so nothing of it may be in flight on any rank."""
        self.wait(batch)
        self._forget(batch)
        self._port.prefill.drop_prefill(batch.batch)

    def view(self, batch: LayerwiseBatch, *, in_flight: Step | None) -> PrefillView:
        """What a policy sees. Layers launched beside the step `in_flight` count as done.

        A decision is about the step after the one in flight: by then the layers launched beside that one
        are done as well, if the predictions hold; older ones that are still in flight are a backlog.
        """
        backlog = sum(
            quantum.layers
            for quantum in batch.quanta
            if quantum.colocated_step is None or quantum.colocated_step is not in_flight
        )
        return PrefillView(
            batch_id=batch.batch_id,
            mode=PrefillMode.LAYERWISE,
            requests=batch.entries,
            shape=batch.shape,
            earliest_deadline_s=batch.earliest_deadline_s,
            layers_launched=batch.layers_launched,
            layers_done=batch.layers_launched - backlog,
            was_preempted=batch.was_preempted,
            slices=batch.slices,
        )

    def _forget(self, batch: LayerwiseBatch) -> None:
        if batch is self.ending:
            self.ending = None
        elif batch is self.running:
            self.running = None
        else:
            self.set_aside.remove(batch)

    def _account(self, batch: LayerwiseBatch, quantum: Quantum) -> None:
        elapsed_s = self._streams.elapsed_s(quantum.start, quantum.end)
        batch.device_s += elapsed_s
        if quantum.colocated_step is None:
            batch.alone_s += elapsed_s
            batch.alone_decision = quantum.decision
        self.busy_sm_s += elapsed_s * quantum.sms
