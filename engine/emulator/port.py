"""The emulated GPU as the loop sees it: what there is, decode and fused steps, prefill by layers.

Launching takes the host's time, which passes on the device's clock while the device works.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import NO_DECODE, DecodeShape, PrefillGraph, PrefillShape, slice_bounds
from pdmuxd.engine.emulator.batches import Admitted, EmulatedPrefill, EmulatedStep
from pdmuxd.engine.emulator.book import EmulatedBook
from pdmuxd.engine.emulator.device import Device, Event, Work
from pdmuxd.engine.emulator.graphs import padded, padded_prefill
from pdmuxd.engine.emulator.kv import KvPool
from pdmuxd.engine.emulator.noise import WorkKind
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.streams import EmulatedStreams
from pdmuxd.engine.loop.requests import RefusalCause
from pdmuxd.engine.loop.waiting import WaitingLines


class EmulatedPort:
    """Implements EnginePort and its EngineState."""

    tp_size = 1
    is_first_rank = True
    is_stopping = False
    is_paused = False

    def __init__(
        self, *, profile: Profile, device: Device, streams: EmulatedStreams, kv: KvPool, book: EmulatedBook
    ) -> None:
        self.profile, self.host = profile, profile.host
        self.device = device
        self.book = book
        self.layers = profile.model.layers
        self.stream_group = 0
        self.switch_s = 0.0
        """What changing groups adds to the next step."""
        self.fused_end: Event | None = None
        """Of the fused step launched last. Layers begin after it, as on SGLang: both need the attention
        backend of prefill."""
        self._streams = streams
        self._kv = kv
        self.decode = EmulatedDecodeStream(self)
        self.prefill = EmulatedPrefillStream(self)

    @property
    def state(self) -> EmulatedPort:
        return self

    @property
    def waiting(self) -> WaitingLines:
        """Requests that hold no KV."""
        return self.book.queue

    @property
    def running(self) -> dict[str, Admitted]:
        return self.book.batch.members

    @property
    def chunked_request(self) -> Admitted | None:
        """The request whose prefill is under way in chunks."""
        return self.book.chunked

    @property
    def chunked_end(self) -> int:
        """Tokens of it that are cached or were launched."""
        member = self.book.chunked
        return member.entry.reused_tokens + member.done_tokens if member is not None else 0

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV pool holds."""
        return self._kv.capacity_tokens

    @property
    def kv_free_tokens(self) -> int:
        """Free plus evictable tokens of the KV pool."""
        return self._kv.available_tokens

    @property
    def cached_tokens(self) -> int:
        """Tokens in the prefix cache, in use or not."""
        return self._kv.tree_tokens

    def decode_shape(self, without: Collection[str] = ()) -> DecodeShape:
        """Batch size and the KV tokens that the next step reads."""
        return self.book.batch.shape_without(without) if without else self.book.batch.shape

    def decode_contexts(self) -> Sequence[tuple[str, int]]:
        """Id and context tokens of each request that decodes."""
        return self.book.batch.contexts()

    def still_waiting(self, request_ids: Sequence[str]) -> Collection[str]:
        """The requests of these that wait."""
        return {name for name in request_ids if self.book.queue.get(name) is not None}

    def take_input(self) -> None:
        """Requests are in the book as soon as they come."""

    def idle(self) -> None:
        """There is no housekeeping."""

    def agree(self, plan: Any) -> Any:  # noqa: ANN401 - the interface
        return plan

    def refuse(self, refusals: Sequence[tuple[str, RefusalCause]]) -> None:
        """The book has ended them."""

    def use_group(self, index: int) -> None:
        """Put the streams of a group in force: each is a part of the one stream for its phase, in order."""
        self.stream_group = index
        self.switch_s = self.profile.overheads.switch_s

    def decode_sms(self) -> int:
        """SMs of a step in the group in force. If decode has none there, it is launched on all, as in SGLang:
        a request may join while the prefill that was to have all SMs is in flight."""
        return self._streams.groups[self.stream_group].decode_sms or self.profile.device.total_sms

    def prefill_sms(self) -> int:
        """SMs of layers in the group in force; all of them if prefill has none there."""
        return self._streams.groups[self.stream_group].prefill_sms or self.profile.device.total_sms

    def spend(self, seconds: float) -> None:
        """The host is busy for so long."""
        self.device.run_to(self.device.now_s + seconds)


class EmulatedDecodeStream:
    """Implements DecodeStream."""

    def __init__(self, port: EmulatedPort) -> None:
        self._port = port
        self._book = port.book

    def settle(self) -> None:
        """Nothing to do: requests joined the decode batch when the step was launched."""

    def nothing_launched(self) -> None:
        """There is nothing to forget."""

    def launch_decode(self, without: Collection[str] = ()) -> EmulatedStep | None:
        """One decode step for all that decode but these; None if nothing is left to decode."""
        port, book = self._port, self._book
        book.make_room(len(book.batch.may_sit_out(without)))
        sitting_out = book.batch.may_sit_out(without)
        if len(book.batch.members) <= len(sitting_out):
            return None
        sms, profile, overheads = port.decode_sms(), port.profile, port.profile.overheads
        shape = port.decode_shape({member.rid for member in sitting_out})
        cost = profile.truth.decode_cost(padded(shape), sms)
        # A step takes what the profile's measured steps took from their first event to their last.
        solo_s = cost.seconds + overheads.graph_launch_s + overheads.host_step_s
        solo_s += profile.launches.decode_step_s
        return self._launch(solo_s, sms, cost.hbm_bytes, decodes=True, sitting_out=sitting_out)

    def launch_fused(
        self,
        request_ids: Sequence[str],
        budget_tokens: int,
        graph: PrefillGraph | None = None,
        *,
        decodes: bool = True,
        chunk_waits: bool = False,
        chunk_last: bool = False,
        without: Collection[str] = (),
    ) -> EmulatedStep | None:
        """One batch of the decoding requests and a budget of prompt tokens; None if it would be empty."""
        waits, book = self._book.chunked, self._book
        if not chunk_waits or waits is None:
            return self._launch_fused(
                request_ids, budget_tokens, graph, without, decodes=decodes, chunk_last=chunk_last
            )
        book.chunked = None
        try:
            most = self._port.kv_capacity_tokens
            return self._launch_fused(request_ids, most, None, without, decodes=decodes)
        finally:
            if book.holds(waits):
                book.chunked = waits

    def _launch_fused(
        self,
        request_ids: Sequence[str],
        budget_tokens: int,
        graph: PrefillGraph | None,
        without: Collection[str],
        *,
        decodes: bool,
        chunk_last: bool = False,
    ) -> EmulatedStep | None:
        book, profile = self._book, self._port.profile
        if decodes:
            book.make_room(len(book.batch.may_sit_out(without)))
        sitting_out = book.batch.may_sit_out(without) if decodes else []
        decode = self._port.decode_shape({m.rid for m in sitting_out}) if decodes else NO_DECODE
        is_new = book.chunked is None
        fill = self._fill_chunk_last if chunk_last else self._fill
        chunks = fill(request_ids, budget_tokens - decode.bs)
        if not chunks and not decode.bs and book.batch.members:
            book.make_room()  # no admission fits after all: decode rather than idle
            decode = book.batch.shape
        if not chunks and not decode.bs:
            return None
        prefill = PrefillShape.of([(tokens, m.entry.reused_tokens + m.done_tokens) for m, tokens in chunks])
        captured = None
        if graph is not None and is_new and all(tokens == m.entry.new_tokens for m, tokens in chunks):
            captured = padded_prefill([(m.entry.new_tokens, m.entry.reused_tokens) for m, _ in chunks], graph)
        sms, truth = self._port.decode_sms(), profile.truth
        rows = decode if prefill.new_tokens else padded(decode)
        cost = truth.fused_cost(captured or prefill, rows, sms)
        solo_s = truth.serving_fused_s(prefill, rows, sms)
        if captured is not None:
            solo_s = cost.seconds + profile.overheads.graph_launch_s
        return self._launch(
            solo_s, sms, cost.hbm_bytes, decodes=decode.bs > 0, chunks=chunks, sitting_out=sitting_out
        )

    def wait(self, launched: EmulatedStep) -> None:
        """Let time pass until the oldest step in flight is done."""
        self._port.device.run_until(launched.end)

    def read(self, launched: EmulatedStep) -> None:
        """What the oldest step in flight completed can be shared."""
        if self._book.unread.popleft() is not launched:
            raise EngineInvariantError("results were read out of order")
        self._port.spend(self._port.host.read_s(rows=launched.decoding, ended=len(launched.ended)))
        for member in launched.completed:
            if self._book.holds(member):
                self._book.prompt_computed(member)

    def _fill(self, request_ids: Sequence[str], budget_tokens: int) -> list[tuple[Admitted, int]]:
        """The prompt under way first, then new requests in order, while budget and KV last."""
        book, now_s = self._book, self._port.device.now_s
        chunks, waiting = list[tuple[Admitted, int]](), iter(request_ids)
        member = book.chunked
        while budget_tokens > 0:
            if member is None:
                name = next(waiting, None)
                member = book.admit(name, now_s) if name is not None else None
                if member is None:
                    break
            tokens = min(budget_tokens, member.entry.new_tokens - member.done_tokens)
            chunks.append((member, tokens))
            budget_tokens -= tokens
            member = None
        return chunks

    def _fill_chunk_last(self, request_ids: Sequence[str], budget_tokens: int) -> list[tuple[Admitted, int]]:
        """New requests whole while KV lasts, then the prompt under way, a token at least."""
        book, now_s = self._book, self._port.device.now_s
        admitted = [book.admit(name, now_s) for name in request_ids]
        chunks = [(member, member.entry.new_tokens) for member in admitted if member is not None]
        if book.chunked is not None:
            left = max(1, budget_tokens - sum(tokens for _, tokens in chunks))
            chunks.append((book.chunked, min(left, book.chunked.entry.new_tokens - book.chunked.done_tokens)))
        return chunks

    def _launch(
        self,
        solo_s: float,
        sms: int,
        hbm_bytes: float,
        *,
        decodes: bool,
        chunks: Sequence[tuple[Admitted, int]] = (),
        sitting_out: Sequence[Admitted] = (),
    ) -> EmulatedStep:
        port, book, batch = self._port, self._book, self._book.batch
        solo_s, port.switch_s = solo_s + port.switch_s, 0.0
        bs = len(batch.members) - len(sitting_out) if decodes else 0
        prompt_tokens = sum(tokens for _, tokens in chunks)
        port.spend(port.host.form_s(rows=bs, begun=[not member.done_tokens for member, _ in chunks]))
        of = (WorkKind.FUSED, prompt_tokens) if chunks else (WorkKind.DECODE, bs)
        work = port.device.launch(port.device.decode, solo_s=solo_s, sms=sms, hbm_bytes=hbm_bytes, of=of)
        step = EmulatedStep(
            start=work.start,
            end=work.end,
            index=batch.steps,
            decoding=bs,
            is_decode=decodes,
            ended=batch.step(sitting_out) if decodes else [],
            completed=[],
            prompt_tokens=prompt_tokens,
        )
        if chunks:
            book.chunked = None
            port.fused_end = work.end
        for member, tokens in chunks:
            member.done_tokens += tokens
            if member.done_tokens < member.entry.new_tokens:
                book.chunked = member
            else:
                step.completed.append(member)
                book.join(member)
        book.unread.append(step)
        port.spend(max(port.host.launch_s, port.profile.overheads.graph_launch_s))
        return step


class EmulatedPrefillStream:
    """Implements PrefillStream."""

    def __init__(self, port: EmulatedPort) -> None:
        self._port = port
        self._book = port.book

    def form_prefill(
        self, request_ids: Sequence[str], graph: PrefillGraph | None = None
    ) -> EmulatedPrefill | None:
        """Take KV for these requests; None if none of them fits."""
        now_s = self._port.device.now_s
        members = [m for m in (self._book.admit(name, now_s) for name in request_ids) if m is not None]
        if not members:
            return None
        self._port.spend(self._port.host.form_s(rows=0, begun=[True] * len(members)))
        lengths = [(m.entry.new_tokens, m.entry.reused_tokens) for m in members]
        return EmulatedPrefill(
            reqs=members,
            shape=PrefillShape.of(lengths),
            graph_shape=None if graph is None else padded_prefill(lengths, graph),
        )

    def launch_layers(
        self, batch: EmulatedPrefill, layers: int, slices: int
    ) -> tuple[Event, Event, EmulatedPrefill | None]:
        """The next layers of a batch, or slices of them; one that is captured runs whole."""
        if slices > 1:
            return self._launch_slices(batch, layers, slices)
        port, total, overheads = self._port, self._port.layers, self._port.profile.overheads
        sms = port.prefill_sms()
        cost = port.profile.truth.prefill_cost(batch.graph_shape or batch.shape, sms)
        layer_s = max(cost.seconds / total, overheads.layer_launch_s)
        host_s = overheads.layer_launch_s * layers
        if batch.graph_shape is not None:
            if layers != total:
                raise EngineInvariantError("a part of a captured prefill graph was launched")
            layer_s, host_s = (cost.seconds + overheads.graph_launch_s) / total, overheads.graph_launch_s
        work: Work = port.device.launch(
            port.device.prefill,
            solo_s=layers * layer_s,
            sms=sms,
            hbm_bytes=cost.hbm_bytes * layers / total,
            after=port.fused_end,
            of=(WorkKind.PREFILL, batch.shape.new_tokens),
        )
        batch.layers_launched += layers
        port.spend(host_s)
        return work.start, work.end, (batch if batch.layers_launched == total else None)

    def _launch_slices(
        self, batch: EmulatedPrefill, count: int, slices: int
    ) -> tuple[Event, Event, EmulatedPrefill | None]:
        """The next slices of layers. Each reads the KV of those before it in its layer."""
        port, layer_launch_s = self._port, self._port.profile.overheads.layer_launch_s
        sms, total = port.prefill_sms(), port.layers
        shape, works = batch.shape, list[Work]()
        for number in range(batch.layers_launched, batch.layers_launched + count):
            start, end = slice_bounds(shape.new_tokens, slices, number % slices)
            part = PrefillShape.of([(end - start, shape.reused_tokens + start)])
            cost = port.profile.truth.prefill_cost(part, sms)
            work = port.device.launch(
                port.device.prefill,
                solo_s=max(cost.seconds / total, layer_launch_s),
                sms=sms,
                hbm_bytes=cost.hbm_bytes / total,
                after=port.fused_end,
                of=(WorkKind.PREFILL, shape.new_tokens),
            )
            works.append(work)
        batch.layers_launched += count
        port.spend(layer_launch_s * count)
        return works[0].start, works[-1].end, (batch if batch.layers_launched == total * slices else None)

    def waits_for_device(self, new_tokens: int, stream_group: int) -> bool:  # noqa: ARG002 - the interface
        """Say no: it has memory for every prefill that it begins."""
        return False

    def finish_prefill(
        self,
        batch: EmulatedPrefill,
        result: object,  # noqa: ARG002 - the interface
        end: Event,  # noqa: ARG002
        *,
        hold: bool,  # noqa: ARG002
    ) -> None:
        """Let its requests be shared and decode; the loop says when their first tokens go out."""
        for member in batch.reqs:
            if self._book.holds(member):
                self._book.prompt_computed(member)
                self._book.join(member)

    def release_tokens(self) -> None:
        """The book is told of them by the loop."""

    def is_abandoned(self, batch: EmulatedPrefill) -> bool:
        return not any(map(self._book.holds, batch.reqs))

    def drop_prefill(self, batch: EmulatedPrefill) -> None:
        """Forget a prefill whose KV was given back when its requests were aborted."""
