"""Attention-aware roofline: latency from operator FLOPs and bytes, for any SM count and any batch.

Source: DuetServe section 4.1. It needs no profile of the model, and it predicts mixed batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pdmuxd.engine.core.latency import MAX_ENTRIES, LatencyCache
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.core.types import NO_DECODE, DecodeShape, PrefillSample, PrefillShape, WaitingRequest

NO_PREFILL = PrefillShape(bs=0, new_tokens=0, reused_tokens=0, sum_new_squared=0, sum_new_times_reused=0)


SINGLE_GPU = TensorParallel()

COLOCATED_SLOPE = 0.75
"""How much decode's share of the SMs adds to the slowdown of a prefill beside decode: 0.63 for Llama-8B, 0.95
for CodeLlama-34B (one H200, SGLang 0.5.23, 2026-11-22)."""


_Linear = tuple[float, float, float]
"""A linear operator on one GPU: FLOPs per token (of 16 bits, or as many as take as long), bytes per token,
weight bytes."""


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
    def _linear(self) -> tuple[_Linear, ...]:
        """The linear operators that all layers have: those of attention and, without experts, of the rest."""
        m = self.model
        attention = self._attention_linear
        return attention if m.experts is not None else (*attention, *self._feed_forward(m.intermediate))

    @cached_property
    def _attention_linear(self) -> tuple[_Linear, ...]:
        """Heads are divided among GPUs: what is as wide as the heads, on its one side or the other."""
        m, n = self.model, self.tensor_parallel.gpus
        if m.latent is None:
            q = m.heads * m.head_dim / n
            return (
                self._operator(m.hidden, q + 2 * m.kv_heads * m.head_dim / n),
                self._operator(q, m.hidden),
            )
        *inner, out = m.attention_widths
        whole = {m.latent.q_rank, m.latent.kv_rank + m.latent.rope_dim}
        return (
            *(self._operator(i, o if o in whole else o / n) for i, o in inner),
            self._operator(out[0] / n, out[1]),
        )

    def _feed_forward(self, width: int) -> tuple[_Linear, ...]:
        m, n = self.model, self.tensor_parallel.gpus
        return (self._operator(m.hidden, 2 * width / n), self._operator(width / n, m.hidden))

    def _operator(self, i: float, o: float) -> _Linear:
        m = self.model
        flops = 2.0 * i * o / (self.device.eight_bit_ratio if m.computes_in_8_bits else 1.0)
        return flops, (i + o) * m.bytes_per_value, i * o * m.weight_bytes_each

    @cached_property
    def _of_some_layers(self) -> tuple[tuple[int, _Linear], ...]:
        """Count, for a model with experts, feed-forward operators that every token takes, and in how many
        layers."""
        of = self.model.experts
        if of is None:
            return ()
        layers = self.model.layers - of.dense_layers
        dense = self._feed_forward(self.model.intermediate)
        shared = self._feed_forward(of.shared_intermediate) if of.shared_intermediate else ()
        router: _Linear = (
            2.0 * self.model.hidden * of.count,
            float((self.model.hidden + of.count) * self.model.bytes_per_value),
            float(self.model.hidden * of.count * self.model.bytes_per_value),
        )
        return (
            *((of.dense_layers, operator) for operator in dense if of.dense_layers),
            *((layers, operator) for operator in (*shared, router)),
        )

    @cached_property
    def _chosen(self) -> tuple[_Linear, ...]:
        """One expert's operators: FLOPs and bytes of a token that takes `per_token` of them, weight bytes of
        one expert."""
        of = self.model.experts
        if of is None:
            return ()
        each = of.bytes_per_weight or self.model.weight_bytes_each
        ratio = each / self.model.weight_bytes_each
        return tuple(
            (flops * of.per_token, moved * of.per_token, weights * ratio)
            for flops, moved, weights in self._feed_forward(of.intermediate)
        )

    @cached_property
    def _head(self) -> tuple[float, float]:
        """FLOPs per row of the classifier on all GPUs, bytes of its weights on each."""
        m = self.model
        return 2.0 * m.hidden * m.vocab, m.hidden * m.vocab * m.bytes_per_value / self.tensor_parallel.gpus

    @cached_property
    def _attention(self) -> tuple[float, float, float, float]:
        """Count per layer and GPU: bytes of a token's KV, of a query's, FLOPs of a pair of tokens in a
        prefill and in a decode step.

        A latent vector is on every GPU. A prefill unfolds it into heads; a decode step multiplies with it as
        it is (DeepSeek-V2, 2.1.2), as SGLang does.
        """
        m, gpus = self.model, self.tensor_parallel.gpus
        kv_bytes = m.kv_values * (m.bytes_per_kv_value or float(m.bytes_per_value))
        if m.latent is None:
            pair = (4.0 * m.heads * m.head_dim + 2.0 * m.heads) / gpus
            return kv_bytes / gpus, 2.0 * m.heads * m.head_dim * m.bytes_per_value / gpus, pair, pair
        at = m.latent
        rows = m.heads / gpus
        return (
            kv_bytes,
            rows * (2 * at.kv_rank + at.rope_dim) * m.bytes_per_value,
            rows * (2.0 * (at.key_dim + at.rope_dim + at.value_dim) + 2.0),
            rows * (2.0 * (2 * at.kv_rank + at.rope_dim) + 2.0),
        )

    @cached_property
    def _rates(self) -> tuple[tuple[float, float], ...]:
        """(FLOP/s, bytes/s) by SM count; entry 0 is unused."""
        d = self.device
        return ((1.0, 1.0), *((d.flops_on(n), d.bytes_per_s_on(n)) for n in range(1, d.total_sms + 1)))

    @cached_property
    def _cache(self) -> LatencyCache:
        """Sum up the cache of `request_s` and `requests_s`."""
        return LatencyCache()

    @cached_property
    def _linear_costs(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Keep `_linear_cost` by tokens and SMs: steps are compared by few sizes, and decode grows slowly."""
        return {}

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
        if m.windowed_layers or m.linear_layers:
            seen = min(pairs, float(new_tokens * m.window))
            full = m.layers - m.windowed_layers - m.linear_layers
            pairs = (full * pairs + m.windowed_layers * seen) / m.layers
        pair_flops = self._attention[2]
        some_flops = new_tokens * self._flops_of_some_layers
        kv_bytes = m.kv_bytes_per_token * (new_tokens + reused_tokens) / gpus
        return PrefillSample(
            new_tokens=new_tokens,
            reused_tokens=reused_tokens,
            compute_s=(m.layers * (linear_flops + pair_flops * pairs) + some_flops) / flops,
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
        """The ratio grows with decode's share of the SMs: see COLOCATED_SLOPE."""
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
        layer_s, layer_bytes = self._linear_cost(tokens, sms)
        gpus = self.tensor_parallel.gpus
        if gpus > 1:
            message_bytes = float(tokens * m.hidden * m.bytes_per_value)
            layer_s += 2.0 * self.tensor_parallel.all_reduce_s(message_bytes, flops)
        attention_s, attention_bytes = self._attention_cost(prefill, decode, sms, None)
        if m.windowed_layers or m.linear_layers:
            near_s, near_bytes = self._attention_cost(prefill, decode, sms, m.window)
            full = m.layers - m.windowed_layers - m.linear_layers
            attention_s = (full * attention_s + m.windowed_layers * near_s) / m.layers
            attention_bytes = (full * attention_bytes + m.windowed_layers * near_bytes) / m.layers
        layer_bytes += attention_bytes
        layer_s += attention_s
        head_flops_per_row, head_bytes = self._head
        compute_s = (prefill.bs + decode.bs) * head_flops_per_row / gpus / flops
        rest_s = _overlapped_s(compute_s, head_bytes / bandwidth, serial)
        rest_bytes = head_bytes
        if m.experts is not None:
            experts = self._experts_cost(tokens, sms)
            rest_s += experts.seconds
            rest_bytes += experts.hbm_bytes
        return Cost(seconds=m.layers * layer_s + rest_s, hbm_bytes=m.layers * layer_bytes + rest_bytes)

    def _linear_cost(self, tokens: int, sms: int) -> tuple[float, float]:
        """Seconds and bytes of one layer's linear operators, with its gaps."""
        known = self._linear_costs.get((tokens, sms))
        if known is not None:
            return known
        flops, bandwidth = self._rates[sms]
        serial, layer_s, layer_bytes = self.device.serial_ratio, self.overheads.layer_fixed_s, 0.0
        for flops_per_token, bytes_per_token, weight_bytes in self._linear:
            moved = tokens * bytes_per_token + weight_bytes
            compute_s, move_s = tokens * flops_per_token / flops, moved / bandwidth
            layer_s += _overlapped_s(compute_s, move_s, serial)
            layer_bytes += moved
        if len(self._linear_costs) >= MAX_ENTRIES:
            self._linear_costs.clear()
        self._linear_costs[tokens, sms] = layer_s, layer_bytes
        return layer_s, layer_bytes

    def _attention_cost(
        self, prefill: PrefillShape, decode: DecodeShape, sms: int, window: int | None
    ) -> tuple[float, float]:
        """Seconds and bytes of one layer's attention; a window bounds what each token looks back on."""
        flops, bandwidth = self._rates[sms]
        serial = self.device.serial_ratio
        kv_bytes, q_bytes, prefill_flops, decode_flops = self._attention
        attention_s = layer_bytes = 0.0
        if prefill.new_tokens:
            pairs = 0.5 * prefill.sum_new_squared + prefill.sum_new_times_reused
            reused = float(prefill.reused_tokens)
            if window is not None:
                pairs, reused = (
                    min(pairs, float(prefill.new_tokens * window)),
                    min(reused, prefill.bs * window),
                )
            moved = q_bytes * prefill.new_tokens + kv_bytes * (prefill.new_tokens + reused)
            compute_s, move_s = prefill_flops * pairs / flops, moved / bandwidth
            attention_s += _overlapped_s(compute_s, move_s, serial)
            layer_bytes += moved
        if decode.bs:
            pairs = float(decode.reused_tokens + decode.bs)
            if window is not None:
                pairs = min(pairs, float(decode.bs * window))
            moved = q_bytes * decode.bs + kv_bytes * pairs
            compute_s, move_s = decode_flops * pairs / flops, moved / bandwidth
            attention_s += _overlapped_s(compute_s, move_s, serial)
            layer_bytes += moved
        if prefill.new_tokens and decode.bs:
            longest = decode.max_context_tokens
            longest = longest if window is None else min(longest, window)
            tile_flops = 4.0 * self.fused_tile_rows * self.model.head_dim
            attention_s = max(attention_s, longest * tile_flops * sms / flops)
        return attention_s, layer_bytes

    def _experts_cost(self, tokens: int, sms: int) -> Cost:
        """All feed-forward operators of a model with experts; a batch reads the experts that it touches."""
        m = self.model
        if m.experts is None:
            return Cost(seconds=0.0, hbm_bytes=0.0)
        flops, bandwidth = self._rates[sms]
        serial = self.device.serial_ratio
        layers, touched = m.layers - m.experts.dense_layers, m.experts.touched(tokens)
        seconds = hbm_bytes = 0.0
        for count, (flops_per_token, bytes_per_token, weight_bytes) in self._of_some_layers:
            moved = tokens * bytes_per_token + weight_bytes
            seconds += count * _overlapped_s(tokens * flops_per_token / flops, moved / bandwidth, serial)
            hbm_bytes += count * moved
        for flops_per_token, bytes_per_token, weight_bytes in self._chosen:
            moved = tokens * bytes_per_token + touched * weight_bytes
            seconds += layers * _overlapped_s(tokens * flops_per_token / flops, moved / bandwidth, serial)
            hbm_bytes += layers * moved
        return Cost(seconds=seconds, hbm_bytes=hbm_bytes)

    @cached_property
    def _flops_of_some_layers(self) -> float:
        """FLOPs per token of all that `_linear` does not have."""
        if self.model.experts is None:
            return 0.0
        layers = self.model.layers - self.model.experts.dense_layers
        every = sum(count * operator[0] for count, operator in self._of_some_layers)
        return every + layers * sum(operator[0] for operator in self._chosen)


def _overlapped_s(compute_s: float, move_s: float, serial_ratio: float) -> float:
    """The longer of an operator's two times, and what it does not hide of the shorter one."""
    if compute_s > move_s:
        return compute_s + serial_ratio * move_s
    return move_s + serial_ratio * compute_s
