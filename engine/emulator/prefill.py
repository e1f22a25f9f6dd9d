"""The prefill side of the emulated engine: admission, the batch in progress, the one set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import PrefillGraph, PrefillMode, PrefillShape
from pdmuxd.engine.emulator.batches import Admitted, PrefillBatch
from pdmuxd.engine.emulator.device import Device, layers_left
from pdmuxd.engine.emulator.graphs import padded_prefill
from pdmuxd.engine.emulator.kv import KvPool
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.queue import WaitingQueue
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase


class PrefillStage:
    """Owns what is between waiting and decoding."""

    def __init__(self, profile: Profile, device: Device, kv: KvPool, queue: WaitingQueue) -> None:
        self.running: PrefillBatch | None = None
        self.preempted: PrefillBatch | None = None
        self._profile = profile
        self._device = device
        self._kv = kv
        self._queue = queue
        self.chunks: list[tuple[Admitted, int]] = []
        """Prompt tokens of the chunk on the device, per request."""
        self._batches = 0
        self._layer_s = 1.0

    @property
    def layers_in_flight(self) -> int:
        """Layers on the device that have not finished."""
        return layers_left(self._device.prefill.remaining_s, self._layer_s)

    @property
    def is_done(self) -> bool:
        """Whether the last layer of the running batch has finished."""
        batch = self.running
        return (
            batch is not None
            and batch.mode is PrefillMode.LAYERWISE
            and batch.layers_launched == self._profile.model.layers
            and not self._device.prefill.is_busy
        )

    def members(self) -> list[Admitted]:
        """Everyone in the stage."""
        return [m for batch in (self.running, self.preempted) if batch is not None for m in batch.members]

    def admit(self, request_id: str, now_s: float) -> Admitted | None:
        """Take a waiting request in; None if it is not waiting or its KV does not fit now."""
        found = self._queue.get(request_id)
        if found is None:
            return None
        request, entry = found
        holding = self._kv.admit(request.block_keys, request.input_tokens, request.produced_tokens)
        if holding is None:
            return None
        self._queue.remove(request_id)
        request.phase = Phase.PREFILL
        if request.prefill_start_s is None:
            request.prefill_start_s = now_s
            request.reused_tokens = holding.matched_tokens
        entry = replace(entry, new_tokens=holding.private_tokens, reused_tokens=holding.matched_tokens)
        return Admitted(request=request, entry=entry, holding=holding)

    def start(
        self, members: list[Admitted], mode: PrefillMode, graph: PrefillGraph | None = None
    ) -> PrefillBatch:
        """Make a batch the running one, as a captured graph if it fits."""
        if self.running is not None:
            raise EngineInvariantError("a prefill batch was started while another runs")
        self._batches += 1
        lengths = [(m.entry.new_tokens, m.entry.reused_tokens) for m in members]
        self.running = PrefillBatch(
            batch_id=self._batches,
            mode=mode,
            members=members,
            shape=PrefillShape.of(lengths),
            graph_shape=None if graph is None else padded_prefill(lengths, graph),
        )
        return self.running

    def preempt(self) -> None:
        """Set the running batch aside, once, at a layer boundary (invariant 3)."""
        batch = self.running
        if batch is None or self.preempted is not None or self.layers_in_flight:
            raise EngineInvariantError("a preemption that the invariants do not allow")
        batch.was_preempted = True
        self.preempted, self.running = batch, None

    def resume(self) -> None:
        """Take the set-aside batch up again."""
        if self.preempted is None or self.running is not None:
            raise EngineInvariantError("nothing to resume, or another prefill runs")
        self.running, self.preempted = self.preempted, None

    def launch_layers(self, layers: int, sms: int) -> None:
        """Queue layers of the running batch on the prefill stream."""
        batch = self.running
        total = self._profile.model.layers
        if batch is None or batch.layers_launched + layers > total or sms <= 0:
            raise EngineInvariantError("prefill layers launched without a batch, a partition or layers left")
        cost = self._profile.truth.prefill_cost(batch.graph_shape or batch.shape, sms)
        if batch.graph_shape is None:
            self._layer_s = max(cost.seconds / total, self._profile.overheads.layer_launch_s)
        elif layers == total:
            self._layer_s = (cost.seconds + self._profile.overheads.graph_launch_s) / total
        else:
            raise EngineInvariantError("a part of a captured prefill graph was launched")
        self._device.launch(
            self._device.prefill,
            solo_s=layers * self._layer_s,
            sms=sms,
            hbm_bytes=cost.hbm_bytes * layers / total,
        )
        batch.layers_launched += layers

    def fill(
        self, admit: Sequence[str], budget_tokens: int, now_s: float, graph: PrefillGraph | None = None
    ) -> PrefillShape:
        """Form the next chunk: the prefill under way first, then new requests in order, within the budget.

        A batch that starts and is done in this chunk runs as `graph` if it fits (`chunk_graph_shape`).
        """
        members = list(self.running.members) if self.running is not None else []
        for member in members:
            budget_tokens -= self._cut(member, budget_tokens)
        admitted: list[Admitted] = []
        for request_id in admit:
            new = self.admit(request_id, now_s) if budget_tokens > 0 else None
            if new is None:
                break
            admitted.append(new)
            budget_tokens -= self._cut(new, budget_tokens)
        if admitted and self.running is None:
            whole = all(tokens == m.entry.new_tokens for m, tokens in self.chunks)
            self.start(admitted, PrefillMode.CHUNKED, graph if whole else None)
        elif admitted and self.running is not None:
            self.running.extend(admitted)
        return PrefillShape.of((n, m.entry.reused_tokens + m.done_tokens) for m, n in self.chunks)

    @property
    def chunk_graph_shape(self) -> PrefillShape | None:
        """What the chunk computes if it is a captured graph."""
        return self.running.graph_shape if self.chunks and self.running is not None else None

    def chunk_done(self, now_s: float) -> list[Admitted]:
        """The chunk was computed; returns the requests whose prompt it completed."""
        done: list[Admitted] = []
        batch = self.running
        for member, tokens in self.chunks:
            if batch is None or member not in batch.members:
                continue
            member.done_tokens += tokens
            if member.done_tokens >= member.entry.new_tokens:
                batch.members.remove(member)
                self.publish(member, now_s)
                done.append(member)
        self.chunks = []
        if batch is not None and not batch.members:
            self.running = None
        return done

    def _cut(self, member: Admitted, budget_tokens: int) -> int:
        tokens = max(0, min(budget_tokens, member.entry.new_tokens - member.done_tokens))
        if tokens:
            self.chunks.append((member, tokens))
        return tokens

    def complete(self, now_s: float) -> list[Admitted]:
        """The running batch is done: publish its prompts and hand its members over."""
        batch = self.running
        if batch is None:
            raise EngineInvariantError("no prefill to complete")
        self.running = None
        for member in batch.members:
            self.publish(member, now_s)
        return batch.members

    def publish(self, member: Admitted, now_s: float) -> None:
        """A request's prompt is computed: it has its next token, and others may share its blocks."""
        request = member.request
        self._kv.publish(member.holding, request.block_keys, request.input_tokens)
        request.produced_tokens += 1
        if request.first_token_s is None:
            request.first_token_s = now_s

    def drop(self, request: EmulatedRequest) -> Admitted | None:
        """Remove an aborted request; a batch that becomes empty is dropped with its work on the device."""
        for batch in (self.running, self.preempted):
            member = next((m for m in batch.members if m.request is request), None) if batch else None
            if batch is None or member is None:
                continue
            batch.members.remove(member)
            if not batch.members:
                self._forget(batch)
            return member
        return None

    def _forget(self, batch: PrefillBatch) -> None:
        if batch is self.preempted:
            self.preempted = None
            return
        self.running = None
        if self._device.prefill.is_busy:
            self._device.cancel(self._device.prefill)
            self.chunks = []
