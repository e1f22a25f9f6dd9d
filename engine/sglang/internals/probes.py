"""Batches for measurements, on an idle engine whose prefix cache was emptied; they serve no request.

They use KV slots without taking them from the pool. That is why the cache must be empty: every slot is free
then, and whoever takes it later overwrites what a measurement left there.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.api.types.requests import Batch, ForwardMode, Request
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler

_SEED = 1
MODELS_OWN = (
    *(ArithmeticError, AssertionError, AttributeError, EngineError),
    *(LookupError, NotImplementedError, RuntimeError, TypeError, ValueError),
)
"""What a model's code may raise for a prompt that is made up, and still serve."""


def has_state_slots(scheduler: Scheduler) -> bool:
    """Whether the model keeps a state for each request besides KV (Mamba, linear attention), which a batch
    that takes nothing from the pools does not have."""
    return getattr(scheduler.req_to_token_pool, "mamba_pool", None) is not None


class ProbeBatches:
    """Makes batches on one scheduler's pools. Raises: EngineError for what does not fit."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler
        self._api = sglang()
        # The same tokens on every rank: each looks up those of its part of the vocabulary.
        self._random = torch.Generator(device=scheduler.device)
        self._random.manual_seed(_SEED)

    def empty_cache(self) -> None:
        """Free every KV slot. Raises: EngineError if the engine is not idle."""
        if self._s.tree_cache.total_size() and not self._s.flush_cache(empty_cache=False):
            raise EngineError("the prefix cache could not be emptied; the engine is not idle")

    def split_prefill(
        self, lengths: Sequence[tuple[int, int]], *, colocated_step: Sequence[int] = ()
    ) -> Batch:
        """A layer-wise prefill at layer 0, of (new tokens, reused tokens) per request.

        `colocated_step`: the contexts of a decode batch whose rows and slots it must not touch.
        """
        return self._extend(lengths, self._api.ForwardMode.SPLIT_PREFILL, colocated_step)

    def mixed(self, lengths: Sequence[tuple[int, int]], contexts: Sequence[int]) -> Batch:
        """A fused batch: prompt tokens and one token for each decoding request."""
        decoding = [(1, max(0, context - 1)) for context in contexts]
        modes = self._api.ForwardMode
        return self._extend([*lengths, *decoding], modes.MIXED if decoding else modes.EXTEND)

    def decode(self, contexts: Sequence[int]) -> Batch:
        """One decode step of requests with so many tokens of context each, the new one included."""
        batch = self._batch([(1, max(0, context - 1)) for context in contexts])
        batch.forward_mode = self._api.ForwardMode.DECODE
        batch.input_ids = self._tokens(len(contexts))
        return batch

    def _extend(
        self, lengths: Sequence[tuple[int, int]], mode: ForwardMode, colocated_step: Sequence[int] = ()
    ) -> Batch:
        batch = self._batch(lengths, colocated_step)
        batch.forward_mode = mode
        batch.prefix_lens = [reused for _, reused in lengths]
        batch.extend_lens = [new for new, _ in lengths]
        batch.extend_num_tokens = sum(batch.extend_lens)
        batch.extend_logprob_start_lens = list(batch.extend_lens)
        batch.input_ids = self._tokens(batch.extend_num_tokens)
        return batch

    def _batch(self, lengths: Sequence[tuple[int, int]], colocated_step: Sequence[int] = ()) -> Batch:
        s = self._s
        table = s.req_to_token_pool.req_to_token
        totals = [new + reused for new, reused in lengths]
        first_row, first = 1 + len(colocated_step), 1 + sum(colocated_step)
        if first_row + len(totals) > table.shape[0]:
            raise EngineError(f"{len(totals)} requests do not fit; the engine holds {table.shape[0] - 1}")
        if first + sum(totals) > s.max_total_num_tokens or max(totals) > table.shape[1]:
            raise EngineError(
                f"{sum(totals)} tokens, at most {max(totals)} in a request, do not fit; the KV pool holds "
                f"{s.max_total_num_tokens}, a request {table.shape[1]}"
            )
        requests = [self._request(index) for index in range(len(totals))]
        batch = self._api.Batch.init_new(
            requests,
            s.req_to_token_pool,
            s.token_to_kv_pool_allocator,
            s.tree_cache,
            s.model_config,
            False,
            s.spec_algorithm,
        )
        device = batch.device
        written: list[Tensor] = []
        for row, ((new, _), total) in enumerate(zip(lengths, totals, strict=True), start=first_row):
            slots = torch.arange(first, first + total, dtype=table.dtype, device=device)
            table[row, :total] = slots
            written.append(slots[total - new :])
            first += total
        rows = torch.arange(first_row, first_row + len(totals), dtype=torch.int64)
        batch.req_pool_indices_cpu = rows
        batch.req_pool_indices = batch.req_pool_indices_cpu.to(device)
        batch.seq_lens_cpu = torch.tensor(totals, dtype=torch.int64)
        batch.seq_lens = batch.seq_lens_cpu.to(device)
        batch.orig_seq_lens = batch.seq_lens.to(torch.int32)
        batch.seq_lens_sum = sum(totals)
        batch.out_cache_loc = torch.cat(written).to(torch.int64)
        # A model whose positions have three axes (Qwen-VL) looks for each request's images.
        batch.multimodal_inputs = [None] * len(totals)
        batch.sampling_info = self._api.SamplingInfo.from_schedule_batch(batch, s.model_config.vocab_size)
        return batch

    def _request(self, index: int) -> Request:
        # Sampled as if the request said nothing: eight passes over the logits, the likeliest token takes one.
        params = self._api.SamplingParams(temperature=1.0, max_new_tokens=1, ignore_eos=True)
        params.normalize(None)
        request = self._api.Request(
            f"pdmuxd-probe-{index}", "", array("q", [1]), params, vocab_size=self._s.model_config.vocab_size
        )
        request.refresh_fill_ids()
        request.extend_end = 1
        return request

    def _tokens(self, count: int) -> Tensor:
        high = self._s.model_config.vocab_size
        return torch.randint(
            0, high, (count,), generator=self._random, dtype=torch.int64, device=self._s.device
        )
