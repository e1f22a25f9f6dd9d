"""Layer-wise prefill: SGLang's SPLIT_PREFILL batches, layer by layer on the prefill stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pdmuxd.engine.core.types import PrefillGraph
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Event
from pdmuxd.engine.sglang.api.types.requests import Batch, BatchResult, PrefillBatch
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.internals.activation_memory import ActivationMemory
from pdmuxd.engine.sglang.internals.batches import form_from, join_decode
from pdmuxd.engine.sglang.internals.collectives import PrefillCollectives
from pdmuxd.engine.sglang.internals.group import GroupInForce
from pdmuxd.engine.sglang.internals.invalid_rows import InvalidRows
from pdmuxd.engine.sglang.internals.layerpauses import as_extend, drop
from pdmuxd.engine.sglang.internals.room import Room
from pdmuxd.engine.sglang.internals.slices import cut_into
from pdmuxd.engine.sglang.internals.streaming import HoldingStreamer
from pdmuxd.engine.sglang.streams.base import LaunchStreams


class SchedulerPrefill:
    """Implements PrefillStream."""

    def __init__(
        self,
        scheduler: Scheduler,
        streams: LaunchStreams,
        group: GroupInForce,
        collectives: PrefillCollectives,
        invalid_rows: InvalidRows,
        room: Room,
        memory: ActivationMemory,
    ) -> None:
        self._s = scheduler
        self._api = sglang()
        self._streams = streams
        self._group = group
        self._collectives = collectives
        self._invalid_rows = invalid_rows
        self._room = room
        self._memory = memory
        self._streamer = HoldingStreamer(scheduler.batch_result_processor.output_streamer)
        # It is frozen.
        object.__setattr__(scheduler.batch_result_processor, "output_streamer", self._streamer)

    def form_prefill(
        self,
        request_ids: Sequence[str],
        graph: PrefillGraph | None = None,  # noqa: ARG002 - SGLang captures none, so no policy asks
    ) -> PrefillBatch | None:
        """Take KV for these requests; a batch at layer 0, or None if none of them fits."""
        s = self._s
        s.chunked_prefill_size = None
        s.is_mixed_chunk = False
        with self._collectives.in_force():
            plan = form_from(s, request_ids, lambda: s.get_new_batch_prefill(s.running_batch))
        s.running_batch = plan.running_batch
        if plan.batch_to_run is None or plan.batch_to_run.is_empty():
            return None
        batch = cast(PrefillBatch, plan.batch_to_run)
        self._room.note(batch.extend_num_tokens)
        # Here, since nothing was launched in this turn.
        self._memory.prepare(self._group.prefill, batch.extend_num_tokens)
        batch.forward_mode = self._api.ForwardMode.SPLIT_PREFILL
        self._group.order_prefill()
        batch.formed = self._streams.mark(s.schedule_stream)
        return batch

    def waits_for_device(self, new_tokens: int, stream_group: int) -> bool:
        """Whether memory has to be given back before a prefill of so many tokens is launched there."""
        return self._memory.is_short(self._streams.groups[stream_group].prefill, new_tokens)

    def launch_layers(
        self, batch: PrefillBatch, layers: int, slices: int = 1
    ) -> tuple[Event, Event, BatchResult | None]:
        """The next layers of a batch on the prefill stream, or the next of so many slices of each: (start
        event, end event, result).

        The result is None until the last layer is launched; it may be read once the end event is done.
        """
        s, stream = self._s, self._group.prefill
        self._memory.prepare(stream, batch.extend_num_tokens)
        with self._streams.on(stream), self._collectives.in_force():
            if not batch.split_index:
                # Not for the whole schedule stream: each step that is launched puts a barrier on it, which
                # the device passes when that step begins.
                self._streams.order_after(stream, batch.formed)
            start = self._streams.mark(stream)
            self._own_attention(batch)
            batch.split_forward_count = layers
            s.enable_overlap = False  # its branch of run_batch knows no split prefill
            try:
                with cut_into(slices):
                    result = s.run_batch(batch)
            finally:
                s.enable_overlap = True
            batch.split_index += layers
            if batch.split_index < s.model_config.num_hidden_layers * slices:
                return start, self._streams.mark(stream), None
            batch.split_prefill_finished = True
            batch.greatest_logits = self._invalid_rows.greatest(result)
            result.copy_done = s.device_module.Event()
            result.copy_to_cpu(
                return_logprob=batch.return_logprob, return_hidden_states=batch.return_hidden_states
            )
            return start, self._streams.mark(stream), result

    def finish_prefill(self, batch: PrefillBatch, result: BatchResult, end: Event, *, hold: bool) -> None:
        """Finish after the last layer: stream first tokens, publish prompts, join the decode batch.

        Decode is ordered behind the end of the prefill, whose KV it reads. With `hold` the tokens go out when
        `release_tokens` is called.
        """
        s = self._s
        self._streams.order_after(self._group.decode, end)
        self._invalid_rows.fail(s, batch, result, batch.greatest_logits)
        with self._streamer.holding(hold):
            s.process_batch_result(batch, result)
        batch.split_forward_batch = None
        if self._group.attention_owner is batch:
            self._group.attention_owner = None
        batch.filter_batch()
        join_decode(s, batch)

    def release_tokens(self) -> None:
        """Send the tokens that were held back."""
        self._streamer.release()

    def is_abandoned(self, batch: Batch) -> bool:
        """Whether all of its requests were aborted."""
        return all(request.to_finish is not None for request in batch.reqs)

    def drop_prefill(self, batch: Batch) -> None:
        """End the requests of an abandoned batch that has nothing on the device, and give their KV back."""
        s = self._s
        for request in batch.reqs:
            request.to_finish = request.to_finish or self._api.Aborted()
            request.update_finish_state(0)
            s._release_aborted_request(request)
            self._api.release_kv_cache(request, s.tree_cache, checkpoint=False)
            request.time_stats.set_completion_time()
        s.output_streamer.stream_output(batch.reqs, batch.return_logprob)
        drop(batch.split_forward_batch)
        batch.split_forward_batch = None
        if self._group.attention_owner is batch:
            self._group.attention_owner = None

    def _own_attention(self, batch: Batch) -> None:
        """Give the prefill attention backend this batch's metadata: it holds those of one batch, and another
        batch may have used it since."""
        if self._group.attention_owner is batch:
            return
        if batch.split_index and batch.split_forward_batch is not None:
            backend = self._s.tp_worker.model_runner.attn_backend
            with as_extend(batch.split_forward_batch):
                backend.init_forward_metadata(batch.split_forward_batch)
        self._group.attention_owner = batch
