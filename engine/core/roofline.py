"""Attention-aware roofline: latency from operator FLOPs and bytes, for any SM count and any batch.

Source: DuetServe section 4.1. It needs no profile of the model, and it predicts mixed batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pdmuxd.engine.core.latency_cache import LatencyCache
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.core.types import NO_DECODE, DecodeShape, PrefillSample, PrefillShape, WaitingRequest

NO_PREFILL = PrefillShape(bs=0, new_tokens=0, reused_tokens=0, sum_new_squared=0, sum_new_times_reused=0)


SINGLE_GPU = TensorParallel()

COLOCATED_SLOPE = 0.75
"""How much decode's share of the SMs adds to the slowdown of a prefill beside decode: 0.63 for Llama-8B, 0.95
for CodeLlama-34B (one H200, SGLang 0.5.23, 2026-11-22)."""


class Cost(NamedTuple):
    """Seconds of a piece of work alone on its SMs, and the HBM bytes that it moves."""

    seconds: float
    hbm_bytes: float


FLASH_ATTENTION_TILE_ROWS = 128
"""Tile height of FlashAttention-3's kernel for mixed batches, which SGLang uses: see `fused_tile_rows`."""


@dataclass(frozen=True, kw_only=True)
class RooflineModel:
    """A LatencyModel from a model's and a device's shape alone.

    With tensor parallelism every GPU is split alike, so SM counts are those of one GPU; each computes its
    share of the heads and of the weights, and two all-reduces a layer put the results together.
    """

    model: ModelShape
    device: DeviceShape
    overheads: Overheads
    tensor_parallel: TensorParallel = SINGLE_GPU
    fused_tile_rows: int = 0
    """Rows of a tile of attention. In a mixed batch a decoding request is one tile for each KV head, however
    long its context, and one SM works on it alone. 0: contexts are split over SMs, as in decode steps."""

    @cached_property
    def _linear(self) -> tuple[tuple[float, float, float], ...]:
        """Per linear operator of a layer on one GPU: FLOPs per token, bytes per token, weight bytes."""
        m, n = self.model, self.tensor_parallel.gpus
        q = m.heads * m.head_dim / n
        shapes = (
            (m.hidden, q + 2 * m.kv_heads * m.head_dim / n),
            (q, m.hidden),
            (m.hidden, 2 * m.intermediate / n),
            (m.intermediate / n, m.hidden),
        )
        s = m.bytes_per_value
        return tuple((2.0 * i * o, (i + o) * s, i * o * s) for i, o in shapes)

    @cached_property
    def _head(self) -> tuple[float, float]:
        """FLOPs per row of the classifier on all GPUs, bytes of its weights on each."""
        m = self.model
        return 2.0 * m.hidden * m.vocab, m.hidden * m.vocab * m.bytes_per_value / self.tensor_parallel.gpus

    @cached_property
    def _attention(self) -> tuple[float, float, float]:
        """Per layer and GPU: bytes of a token's KV, of a query's, FLOPs of a pair of tokens."""
        m, gpus = self.model, self.tensor_parallel.gpus
        return (
            2.0 * m.kv_heads * m.head_dim * m.bytes_per_value / gpus,
            2.0 * m.heads * m.head_dim * m.bytes_per_value / gpus,
            (4.0 * m.heads * m.head_dim + 2.0 * m.heads) / gpus,
        )

    @cached_property
    def _rates(self) -> tuple[tuple[float, float], ...]:
        """(FLOP/s, bytes/s) by SM count; entry 0 is unused."""
        d = self.device
        return ((1.0, 1.0), *((d.flops_on(n), d.bytes_per_s_on(n)) for n in range(1, d.total_sms + 1)))

    @cached_property
    def _cache(self) -> LatencyCache:
        """Of `request_s` and `requests_s`."""
        return LatencyCache()

    def prefill_cost(self, shape: PrefillShape, sms: int) -> Cost:
        """All layers of a prefill; the classifier runs on one position of each request."""
        return self._cost(shape, NO_DECODE, sms)

    def decode_cost(self, shape: DecodeShape, sms: int) -> Cost:
        """One decode step on the device, without the host's part."""
        return self._cost(NO_PREFILL, shape, sms)

    def fused_cost(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> Cost:
        """One mixed batch on the device, without the host's part."""
        return self._cost(prefill, decode, sms)

    def prefill_s(self, shape: PrefillShape, sms: int) -> float:
        """Never faster than the CPU can launch the layers."""
        launch_s = self.overheads.layer_launch_s * self.model.layers
        return max(self._cost(shape, NO_DECODE, sms).seconds, launch_s)

    def prefill_terms(self, new_tokens: int, reused_tokens: int) -> PrefillSample:
        """Compute and KV traffic of a prefill on the whole device, as PLA-Serve 2.1 divides them."""
        m, gpus = self.model, self.tensor_parallel.gpus
        flops, bandwidth = self._rates[self.device.total_sms]
        linear_flops = new_tokens * sum(per_token for per_token, _, _ in self._linear)
        pairs = 0.5 * new_tokens * new_tokens + new_tokens * reused_tokens
        pair_flops = self._attention[2]
        kv_bytes = m.kv_bytes_per_token * (new_tokens + reused_tokens) / gpus
        return PrefillSample(
            new_tokens=new_tokens,
            reused_tokens=reused_tokens,
            compute_s=m.layers * (linear_flops + pair_flops * pairs) / flops,
            memory_s=kv_bytes / bandwidth,
        )

    def request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        """A prefill of one request."""
        return self._cache.lookup(new_tokens, reused_tokens, sms, self._request_s)

    def requests_s(self, requests: Sequence[WaitingRequest], sms: int) -> list[float]:
        """`request_s` of each."""
        return self._cache.lookup_all(requests, sms, self._request_s)

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        """Device step, graph launch and host work."""
        o = self.overheads
        return self._cost(NO_PREFILL, shape, sms).seconds + o.graph_launch_s + o.host_step_s

    def colocated_ratio(self, sms: int) -> float:
        """It grows with decode's share of the SMs: see COLOCATED_SLOPE."""
        return 1.0 + COLOCATED_SLOPE * max(0.0, 1.0 - sms / self.device.total_sms)

    def fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """One mixed batch; stock SGLang overlaps the host's part with the previous step."""
        launch_s = 0.0
        if prefill.new_tokens and prefill.new_tokens + decode.bs > self.overheads.fused_graph_tokens:
            launch_s = self.overheads.layer_launch_s * self.model.layers
        cost = self._cost(prefill, decode, sms)
        return max(cost.seconds, launch_s) + self.overheads.graph_launch_s

    def _request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        return self.prefill_s(PrefillShape.of([(new_tokens, reused_tokens)]), sms)

    def _cost(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> Cost:
        """Sum over operators of max(FLOPs / compute, bytes / bandwidth), as DuetServe's t_total, and of what
        the device does not overlap of the two.

        Attention is summed per phase: q(q+c) over the batch is `sum_new_squared + sum_new_times_reused`
        for prefill and `reused_tokens + bs` for decode (q = 1). Causal masking halves the q*q part.
        """
        tokens = prefill.new_tokens + decode.bs
        if tokens == 0:
            return Cost(seconds=0.0, hbm_bytes=0.0)
        flops, bandwidth = self._rates[sms]
        serial = self.device.serial_ratio
        m = self.model
        layer_s = self.overheads.layer_fixed_s
        layer_bytes = 0.0
        for flops_per_token, bytes_per_token, weight_bytes in self._linear:
            moved = tokens * bytes_per_token + weight_bytes
            compute_s, move_s = tokens * flops_per_token / flops, moved / bandwidth
            layer_s += _overlapped_s(compute_s, move_s, serial)
            layer_bytes += moved
        gpus = self.tensor_parallel.gpus
        kv_bytes, q_bytes, pair_flops = self._attention
        if gpus > 1:
            message_bytes = float(tokens * m.hidden * m.bytes_per_value)
            layer_s += 2.0 * self.tensor_parallel.all_reduce_s(message_bytes, flops)
        attention_s = 0.0
        if prefill.new_tokens:
            pairs = 0.5 * prefill.sum_new_squared + prefill.sum_new_times_reused
            moved = q_bytes * prefill.new_tokens + kv_bytes * (prefill.new_tokens + prefill.reused_tokens)
            compute_s, move_s = pair_flops * pairs / flops, moved / bandwidth
            attention_s += _overlapped_s(compute_s, move_s, serial)
            layer_bytes += moved
        if decode.bs:
            pairs = float(decode.reused_tokens + decode.bs)
            moved = q_bytes * decode.bs + kv_bytes * pairs
            compute_s, move_s = pair_flops * pairs / flops, moved / bandwidth
            attention_s += _overlapped_s(compute_s, move_s, serial)
            layer_bytes += moved
        if prefill.new_tokens and decode.bs:
            tile_flops = 4.0 * self.fused_tile_rows * m.head_dim
            attention_s = max(attention_s, decode.max_context_tokens * tile_flops * sms / flops)
        layer_s += attention_s
        head_flops_per_row, head_bytes = self._head
        compute_s = (prefill.bs + decode.bs) * head_flops_per_row / gpus / flops
        head_s = _overlapped_s(compute_s, head_bytes / bandwidth, serial)
        return Cost(seconds=m.layers * layer_s + head_s, hbm_bytes=m.layers * layer_bytes + head_bytes)


def _overlapped_s(compute_s: float, move_s: float, serial_ratio: float) -> float:
    """The longer of an operator's two times, and what it does not hide of the shorter one."""
    if compute_s > move_s:
        return compute_s + serial_ratio * move_s
    return move_s + serial_ratio * compute_s
