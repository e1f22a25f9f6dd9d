"""What there is in SGLang's scheduler: queues, the KV pool, what it was asked to do. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pdmuxd.engine.core.types import NO_DECODE, DecodeShape
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.requests import Request
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.internals.batches import can_divide


class SchedulerState:
    """Implements EngineState."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler

    @property
    def layers(self) -> int:
        return self._s.model_config.num_hidden_layers

    @property
    def is_stopping(self) -> bool:
        """SGLang was asked to end the loop."""
        return self._s.gracefully_exit

    @property
    def is_paused(self) -> bool:
        """`/pause_generation` is in force."""
        return self._s._engine_paused

    @property
    def tp_size(self) -> int:
        """Ranks that run this loop in step."""
        return self._s.tp_size

    @property
    def is_first_rank(self) -> bool:
        """Whether this process decides."""
        return sglang().get_parallel().tp_rank == 0

    @property
    def waiting(self) -> Sequence[Request]:
        """SGLang's waiting queue, in arrival order."""
        return self._s.waiting_queue

    @property
    def running(self) -> Sequence[Request]:
        """Requests that decode."""
        return self._s.running_batch.reqs

    @property
    def chunked_request(self) -> Request | None:
        """The request whose prefill is under way in chunks, or None."""
        return self._s.chunked_req

    @property
    def chunked_end(self) -> int:
        """Tokens of the chunked request that are cached or were launched."""
        chunked = self._s.chunked_req
        return 0 if chunked is None else chunked.extend_end or 0

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV pool holds."""
        return self._s.max_total_num_tokens

    @property
    def kv_free_tokens(self) -> int:
        """Free plus evictable tokens of the KV pool."""
        return int(self._s.token_to_kv_pool_allocator.available_size()) + self.evictable_tokens

    @property
    def evictable_tokens(self) -> int:
        """Tokens that only the prefix cache holds."""
        return int(self._s.tree_cache.evictable_size())

    @property
    def cached_tokens(self) -> int:
        """Tokens in the prefix cache, in use or not."""
        return self.evictable_tokens + int(self._s.tree_cache.protected_size())

    def still_waiting(self, request_ids: Sequence[str]) -> Collection[str]:  # noqa: ARG002 - the interface
        return {request.rid for request in self._s.waiting_queue}

    def decode_contexts(self) -> Sequence[tuple[str, int]]:
        """Id and context tokens of each request that decodes; none where the batch cannot be divided, so that
        no policy asks for it."""
        batch = self._s.running_batch
        if batch.is_empty() or not can_divide(self._s, batch):
            return ()
        names = [request.rid for request in batch.reqs]
        return list(zip(names, batch.seq_lens_cpu.tolist(), strict=True))

    def decode_shape(self, without: Collection[str] = ()) -> DecodeShape:
        """Batch size and the KV tokens that the next step reads, if these requests sit it out."""
        batch = self._s.running_batch
        if batch.is_empty():
            return NO_DECODE
        lengths = batch.seq_lens_cpu.tolist()  # a tensor's own sums take a busy host 12 us each
        if without:
            gone = frozenset(without)
            return DecodeShape.of(
                [n for request, n in zip(batch.reqs, lengths, strict=True) if request.rid not in gone]
            )
        return DecodeShape(bs=len(lengths), reused_tokens=sum(lengths), max_context_tokens=max(lengths))
