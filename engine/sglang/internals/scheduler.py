"""SGLang's scheduler as the loop sees it: requests, batches and launches, with no decision taken here.

The decode side runs SGLang's own overlap scheduling (a step is launched before the result of the one
before is read), on the decode stream of the group in force; the prefill side runs SPLIT_PREFILL batches
layer by layer on the prefill stream. Batches, requests and results are SGLang's objects and stay opaque
to the loop. One file, though a long one: it is the only one that touches `Scheduler`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.distributed.parallel_state import pdmux_prefill_tp_group
from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.mem_cache.common import release_kv_cache
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.multiplex.pdmux_context import set_current_stream_idx
from sglang.srt.runtime_context import get_parallel

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import NO_DECODE, DecodeShape
from pdmuxd.engine.sglang.streams.base import DeviceStreams


@dataclass(slots=True, eq=False)
class Launched:
    """A step on the decode stream whose result has not been read."""

    batch: Any
    start: Any
    end: Any

    @property
    def requests(self) -> Sequence[Any]:
        """SGLang's requests in the step."""
        return tuple(self.batch.reqs)

    @property
    def decoding(self) -> int:
        """How many of a fused step's requests decode."""
        return len(self.batch.decoding_reqs or ())


class SchedulerPort:
    """One scheduler process. All methods are for the thread of its event loop."""

    def __init__(self, scheduler: Any, streams: DeviceStreams) -> None:
        self._s = scheduler
        self._streams = streams
        self._model_runner = scheduler.tp_worker.model_runner
        self._attention_owner: Any = None
        """The prefill batch that the prefill attention backend's metadata belong to."""
        self._prefill_not_before: Any = None
        """End of a step that a new prefill on the other stream must not overtake: it writes KV slots that
        were given back, or it uses the prefill attention backend."""
        self._last_end: Any = None
        self.stream_group = 0
        self._take_over()

    def _take_over(self) -> None:
        """Switch SGLang's overlap bookkeeping on, which `--enable-pdmux` insists on being off at start."""
        s = self._s
        s.enable_overlap = True
        s.enable_skip_finishing_decode = True
        s.batch_record_buf = [None] * 2
        s.batch_record_ct = 0
        object.__setattr__(s.batch_result_processor, "enable_overlap", True)  # it is frozen
        self.use_group(0)

    # --- what there is

    @property
    def layers(self) -> int:
        """Decoder layers of the model."""
        return int(self._s.model_config.num_hidden_layers)

    @property
    def is_stopping(self) -> bool:
        """SGLang was asked to end the loop."""
        return bool(self._s.gracefully_exit)

    @property
    def is_paused(self) -> bool:
        """`/pause_generation` is in force."""
        return bool(self._s._engine_paused)

    @property
    def tp_size(self) -> int:
        """Ranks that run this loop in step."""
        return int(self._s.tp_size)

    @property
    def is_first_rank(self) -> bool:
        """Whether this process decides."""
        return bool(get_parallel().tp_rank == 0)

    @property
    def waiting(self) -> Sequence[Any]:
        """SGLang's waiting queue, in arrival order."""
        queue: Sequence[Any] = self._s.waiting_queue
        return queue

    @property
    def running(self) -> Sequence[Any]:
        """Requests that decode."""
        requests: Sequence[Any] = self._s.running_batch.reqs
        return requests

    @property
    def chunked_request(self) -> Any:
        """The request whose prefill is under way in chunks, or None."""
        return self._s.chunked_req

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV pool holds."""
        return int(self._s.max_total_num_tokens)

    @property
    def kv_free_tokens(self) -> int:
        """Free plus evictable tokens of the KV pool."""
        return int(self._s.token_to_kv_pool_allocator.available_size() + self.evictable_tokens)

    @property
    def evictable_tokens(self) -> int:
        """Tokens that only the prefix cache holds."""
        return int(self._s.tree_cache.evictable_size())

    @property
    def cached_tokens(self) -> int:
        """Tokens in the prefix cache, in use or not."""
        return self.evictable_tokens + int(self._s.tree_cache.protected_size())

    def decode_shape(self) -> DecodeShape:
        """Batch size and the KV tokens that the next step reads."""
        batch = self._s.running_batch
        if batch.is_empty():
            return NO_DECODE
        return DecodeShape(bs=len(batch.reqs), reused_tokens=int(batch.seq_lens_cpu.sum()))

    def reused_tokens(self, request: Any) -> int:
        """Look a waiting request's tokens up in the prefix cache."""
        request.init_next_round_input(self._s.tree_cache)
        return int(request.prefix_len)

    # --- a turn of the loop

    def take_input(self) -> None:
        """Receive requests and controls, as every SGLang loop does."""
        s = self._s
        s.ingest_requests()
        if s.grammar_manager.has_waiting_grammars():
            for request in s.grammar_manager.get_ready_grammar_requests():
                s._add_request_to_queue(request)

    def idle(self) -> None:
        """Nothing is launched or pending: SGLang's housekeeping and leak checks."""
        s = self._s
        s.last_batch = None
        s._sched_idled = True
        s.on_idle()

    def agree(self, plan: Any) -> Any:
        """Rank 0's plan of this turn, on every rank."""
        if self.tp_size == 1:
            return plan
        carrier = [plan]
        group = self._s.tp_group
        torch.distributed.broadcast_object_list(carrier, src=group.ranks[0], group=self._s.tp_cpu_group)
        return carrier[0]

    def use_group(self, index: int) -> None:
        """Put the streams of a group in force.

        Nothing is drained: the new streams wait on the device for what the old ones hold, so whatever is
        launched next comes after what it depends on (invariant 2).
        """
        old, new = self._streams.groups[self.stream_group], self._streams.groups[index]
        if new is not old:
            self._streams.order(new.decode, old.decode)
            self._streams.order(new.prefill, old.prefill)
        self.stream_group = index
        set_current_stream_idx(index)
        self._model_runner.update_decode_attn_backend(index)
        self._s.forward_stream = new.decode
        self._s.forward_stream_ctx = self._streams.on(new.decode)

    # --- decode and fused steps

    def settle(self) -> None:
        """Requests whose prompt the last fused step completed join the decode batch; ended ones leave it."""
        s = self._s
        last = s.last_batch
        if last is not None and last.forward_mode.is_extend():
            chunked = [r for r in {s.chunked_req, last.chunked_req} if r is not None]
            last_bs = last.batch_size()
            last.filter_batch(reqs_to_exclude=chunked)
            if last.batch_size() < last_bs:
                s.running_batch.batch_is_full = False
            s.last_batch = None
            self._join(last)
        bs = s.running_batch.batch_size()
        s.running_batch.filter_batch()
        if s.running_batch.batch_size() < bs:
            s.running_batch.batch_is_full = False

    def launch_decode(self) -> Launched | None:
        """One decode step for all that decode; None if nothing is left to decode."""
        s = self._s
        waiting = len(s.waiting_queue)
        batch = s.update_running_batch(s.running_batch)
        if len(s.waiting_queue) > waiting and s.result_queue:
            self._prefill_not_before = self._last_end
        if batch is None or batch.is_empty():
            return None
        return self._launch(batch)

    def launch_fused(self, request_ids: Sequence[str], budget_tokens: int) -> Launched | None:
        """One batch of the decoding requests and a budget of prompt tokens, as SGLang's mixed chunk."""
        s = self._s
        s.chunked_prefill_size = budget_tokens
        s.is_mixed_chunk = True
        waiting = len(s.waiting_queue)
        plan = self._only(
            request_ids,
            lambda: s.get_next_batch_to_run(running_batch=s.running_batch, last_batch=s.last_batch),
        )
        if len(s.waiting_queue) > waiting and s.result_queue:
            self._prefill_not_before = self._last_end
        s.running_batch = plan.running_batch
        self._attention_owner = None
        if not plan.batch_to_run:
            return None
        launched = self._launch(plan.batch_to_run)
        self._prefill_not_before = launched.end
        return launched

    def read(self, launched: Launched) -> None:
        """Wait for the oldest step in flight, stream its tokens, end who is done.

        A request that ended may still have a row in the step launched after it, whose KV slot is free by
        now: prefill on the other stream must not be given that slot before the step is over.
        """
        s = self._s
        batch, result = s.result_queue.popleft()
        if batch is not launched.batch:
            raise EngineInvariantError("results were read out of order")
        s.process_batch_result(batch, result)
        if s.result_queue and any(request.finished() for request in s.result_queue[-1][0].reqs):
            self._prefill_not_before = self._last_end

    def nothing_launched(self) -> None:
        """This turn launched no decode or fused step."""
        self._s.last_batch = None

    def _launch(self, batch: Any) -> Launched:
        s, stream = self._s, self._streams.groups[self.stream_group].decode
        start = self._streams.mark(stream)
        result = s.run_batch(batch)
        end = self._streams.mark(stream)
        s._apply_war_barrier()
        snapshot = batch.copy()
        s.result_queue.append((snapshot, result))
        s.last_batch = batch
        self._last_end = end
        return Launched(batch=snapshot, start=start, end=end)

    def _join(self, batch: Any) -> None:
        s = self._s
        if batch.is_empty() or batch is s.running_batch:
            return
        if s.running_batch.is_empty():
            batch.batch_is_full = s.running_batch.batch_is_full
            s.running_batch = batch
        else:
            s.running_batch.merge_batch(batch)

    def _only(self, request_ids: Iterable[str], form: Callable[[], Any]) -> Any:
        """Let SGLang form a batch from just these waiting requests, in this order."""
        s = self._s
        by_id = {request.rid: request for request in s.waiting_queue}
        chosen = [by_id.pop(request_id) for request_id in request_ids if request_id in by_id]
        s.waiting_queue = chosen
        try:
            return form()
        finally:
            s.waiting_queue = s.waiting_queue + list(by_id.values())

    # --- layer-wise prefill

    def form_prefill(self, request_ids: Sequence[str]) -> Any:
        """Take KV for these requests; a batch at layer 0, or None if none of them fits."""
        s = self._s
        s.chunked_prefill_size = None
        s.is_mixed_chunk = False
        with pdmux_prefill_tp_group():
            plan = self._only(request_ids, lambda: s.get_new_batch_prefill(s.running_batch))
        s.running_batch = plan.running_batch
        batch = plan.batch_to_run
        if batch is None or batch.is_empty():
            return None
        batch.forward_mode = ForwardMode.SPLIT_PREFILL
        if self._prefill_not_before is not None:
            self._streams.order_after(
                self._streams.groups[self.stream_group].prefill, self._prefill_not_before
            )
            self._prefill_not_before = None
        return batch

    def launch_layers(self, batch: Any, layers: int) -> tuple[Any, Any, Any]:
        """The next layers of a batch on the prefill stream: (start event, end event, result).

        The result is None until the last layer is launched; it may be read once the end event is done.
        """
        s = self._s
        stream = self._streams.groups[self.stream_group].prefill
        with self._streams.on(stream), pdmux_prefill_tp_group():
            stream.wait_stream(s.schedule_stream)
            start = self._streams.mark(stream)
            if self._attention_owner is not batch:
                if batch.split_index:
                    self._model_runner.attn_backend.init_forward_metadata(batch.split_forward_batch)
                self._attention_owner = batch
            batch.split_forward_count = layers
            s.enable_overlap = False  # its branch of run_batch knows no split prefill
            try:
                result = s.run_batch(batch)
            finally:
                s.enable_overlap = True
            batch.split_index += layers
            if batch.split_index < self.layers:
                return start, self._streams.mark(stream), None
            batch.split_prefill_finished = True
            result.copy_done = s.device_module.Event()
            result.copy_to_cpu(
                return_logprob=batch.return_logprob, return_hidden_states=batch.return_hidden_states
            )
            return start, self._streams.mark(stream), result

    def finish_prefill(self, batch: Any, result: Any, end: Any) -> None:
        """Its last layer is done: stream first tokens, publish prompts, join the decode batch.

        Decode is ordered behind the end of the prefill, whose KV it reads.
        """
        s = self._s
        self._streams.order_after(self._streams.groups[self.stream_group].decode, end)
        s.process_batch_result(batch, result)
        batch.split_forward_batch = None
        self._attention_owner = None
        batch.filter_batch()
        self._join(batch)

    def forget_prefill_metadata(self) -> None:
        """The prefill attention backend was used by someone else."""
        self._attention_owner = None

    def is_abandoned(self, batch: Any) -> bool:
        """Whether all of its requests were aborted."""
        return all(request.to_finish is not None for request in batch.reqs)

    def drop_prefill(self, batch: Any) -> None:
        """End the requests of an abandoned batch that has nothing on the device, and give their KV back."""
        s = self._s
        for request in batch.reqs:
            request.to_finish = request.to_finish or FINISH_ABORT()
            request.update_finish_state(0)
            s._release_aborted_request(request)
            release_kv_cache(request, s.tree_cache, checkpoint=False)
            request.time_stats.set_completion_time()
        s.output_streamer.stream_output(batch.reqs, batch.return_logprob)
        batch.split_forward_batch = None
        if self._attention_owner is batch:
            self._attention_owner = None
