"""What a model and a device are, as far as latency depends on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdmuxd.engine.core.errors import ProfileError

_STRAIGHT = 1e-6
"""A smaller curvature counts as none: dividing by it would give rounding errors."""
_REST_IDLE_SMS = ((128, 6.0), (192, 2.0))
"""(requests, SMs): how many SMs of what a split leaves do nothing for a decode step of so many requests,
straight in between. Of an H200's 132 SMs 12 are in no group of 8, and what a split leaves has all of them.
On 20, 36 and 52 left SMs steps took as long as on 5, 5 and 9 fewer in whole groups (up to 16 requests), 7, 6
and 7 (17 to 64), 7, 6 and 5 (65 to 128), 4, 4 and 3 (129 to 192), 1, 4 and 0 (more). Llama-8B, 2026-11-23."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Feed-forward parts of which each token takes a few (Mixtral's, Qwen3's, DeepSeek's)."""

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int = 0
    """Of those that every token takes, together."""
    dense_layers: int = 0
    """Layers without experts: their feed-forward part is the model's `intermediate`."""
    bytes_per_weight: float = 0.0
    """Of the experts that tokens choose among; 0: as the model's other weights."""

    def __post_init__(self) -> None:
        if not 0 < self.per_token <= self.count:
            raise ProfileError(
                f"model.experts.per_token is {self.per_token}; allowed are 1 to {self.count}, their count"
            )

    def touched(self, tokens: int) -> float:
        """How many experts' weights a batch reads, if tokens choose evenly and apart."""
        return self.count * (1.0 - (1.0 - self.per_token / self.count) ** tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Attention that keeps one small vector of each token for all heads (DeepSeek-V2's, section 2.1)."""

    kv_rank: int
    rope_dim: int
    """Values that carry the position: kept beside the vector."""
    key_dim: int
    """Of a head's keys, without the position."""
    value_dim: int
    q_rank: int = 0
    """Of the queries, if they come out of a small vector too; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder-only transformer: with the defaults a dense one of the Llama family."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_context_tokens: int
    bytes_per_value: int = 2
    bytes_per_weight: float = 0.0
    """Of the layers' linear operators, scales included; 0: `bytes_per_value`."""
    bytes_per_kv_value: float = 0.0
    """0: `bytes_per_value`."""
    computes_in_8_bits: bool = False
    """Whether the linear operators multiply FP8 or INT8 values: see DeviceShape.eight_bit_ratio."""
    experts: Experts | None = None
    latent: Latent | None = None
    window: int = 0
    """Tokens that attention of `windowed_layers` looks back on."""
    windowed_layers: int = 0
    linear_layers: int = 0
    """Layers with a state of constant size in place of KV (linear attention, Mamba)."""

    @property
    def weight_bytes_each(self) -> float:
        """Bytes of a weight of the layers' linear operators, chosen experts aside."""
        return self.bytes_per_weight or self.bytes_per_value

    @property
    def kv_values(self) -> int:
        """What one layer with KV keeps of a token: key and value of each KV head, or the latent vector."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> int:
        """KV of one token over all layers that keep some."""
        each = self.bytes_per_kv_value or self.bytes_per_value
        return int((self.layers - self.linear_layers) * self.kv_values * each)

    @property
    def attention_widths(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of the linear operators of attention."""
        if self.latent is None:
            q = self.heads * self.head_dim
            return (self.hidden, q + 2 * self.kv_heads * self.head_dim), (q, self.hidden)
        at = self.latent
        q = self.heads * (at.key_dim + at.rope_dim)
        queries = ((self.hidden, at.q_rank), (at.q_rank, q)) if at.q_rank else ((self.hidden, q),)
        return (
            *queries,
            (self.hidden, at.kv_rank + at.rope_dim),
            (at.kv_rank, self.heads * (at.key_dim + at.value_dim)),
            (self.heads * at.value_dim, self.hidden),
        )

    @property
    def layer_weights(self) -> int:
        """Weights of the linear operators of a layer without experts."""
        return sum(i * o for i, o in self.attention_widths) + 3 * self.hidden * self.intermediate

    @property
    def all_weights_bytes(self) -> float:
        """Bytes of all linear operators, the embedding and the classifier."""
        rest = 2.0 * self.hidden * self.vocab * self.bytes_per_value
        if self.experts is None:
            return self.layers * self.layer_weights * self.weight_bytes_each + rest
        of = self.experts
        attention = self.layers * sum(i * o for i, o in self.attention_widths)
        shared = (self.layers - of.dense_layers) * 3 * self.hidden * of.shared_intermediate
        dense = of.dense_layers * 3 * self.hidden * self.intermediate
        chosen = (self.layers - of.dense_layers) * of.count * 3 * self.hidden * of.intermediate
        each = of.bytes_per_weight or self.weight_bytes_each
        return (attention + shared + dense) * self.weight_bytes_each + chosen * each + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShape:
    """A GPU's achievable compute and bandwidth as functions of the SM count (DuetServe 4.2, figure 4).

    Both follow `1 - exp(-k * sms / total)`, normalised to 1 at the full device, with a k of their own. With
    a `bandwidth_curvature` of 4.5, 20% of the SMs reach 60% of the bandwidth. Compute is linear with a
    `compute_curvature` of 0; on one H200 an SM computes a fifth less when all do, for want of power.
    """

    name: str
    total_sms: int
    min_sms: int
    multiple_sms: int
    flops: float
    """Achievable dense FLOP/s of large matrix products on all SMs."""
    bytes_per_s: float
    """Achievable HBM bytes/s on all SMs."""
    bandwidth_curvature: float
    compute_curvature: float = 0.0
    serial_ratio: float = 0.0
    """How much of the shorter of an operator's two times, computing and moving bytes, the longer one does not
    hide; 0: none. About 0.8 on one H200 (Llama-8B, 2026-11-21), where decode steps of many rows on few SMs
    show it."""
    eight_bit_ratio: float = 2.0
    """How much faster values of 8 bits are multiplied than of 16: twice on Hopper (NVIDIA's data sheets)."""

    def __post_init__(self) -> None:
        for field in (
            *("total_sms", "min_sms", "multiple_sms", "flops", "bytes_per_s", "bandwidth_curvature"),
            "eight_bit_ratio",
        ):
            if not getattr(self, field) > 0:
                raise ProfileError(f"device.{field} is {getattr(self, field)}; it must be positive")
        if not self.compute_curvature >= 0:
            raise ProfileError(
                f"device.compute_curvature is {self.compute_curvature}; it must not be negative"
            )
        if not self.serial_ratio >= 0:
            raise ProfileError(f"device.serial_ratio is {self.serial_ratio}; it must not be negative")

    def flops_on(self, sms: int) -> float:
        """Achievable FLOP/s on so many SMs."""
        return self.flops * _saturating(sms / self.total_sms, self.compute_curvature)

    def bytes_per_s_on(self, sms: int) -> float:
        """Achievable bytes/s on so many SMs, running alone."""
        return self.bytes_per_s * _saturating(sms / self.total_sms, self.bandwidth_curvature)

    def grouped_sms(self, sms: int, requests: int) -> float:
        """SMs in whole groups on which decode of so many requests is as fast: fewer than `sms` if these are
        what a split leaves."""
        is_rest = sms % self.multiple_sms != 0 and sms != self.total_sms
        return max(1.0, sms - _idle_sms(requests)) if is_rest else sms


def _idle_sms(requests: int) -> float:
    (few, most), (many, least) = _REST_IDLE_SMS
    share = min(1.0, max(0.0, (requests - few) / (many - few)))
    return most + share * (least - most)


def _saturating(share: float, curvature: float) -> float:
    """1 at a share of 1. The smaller the curvature, the nearer the result is to the share itself."""
    if curvature < _STRAIGHT:
        return share
    return math.expm1(-curvature * share) / math.expm1(-curvature)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallel:
    """How many GPUs share every layer, and what their all-reduce costs (DuetServe 4.1)."""

    gpus: int = 1
    startup_s: float = 3e-6
    """Startup of one round of a ring all-reduce; DuetServe gives 3 us for an H100."""
    link_bytes_per_s: float = 450e9
    """Unidirectional NVLink bandwidth of one GPU."""

    def __post_init__(self) -> None:
        for field in ("gpus", "startup_s", "link_bytes_per_s"):
            if not getattr(self, field) > 0:
                raise ProfileError(f"tensor_parallel.{field} must be positive")

    def all_reduce_s(self, message_bytes: float, flops: float) -> float:
        """Ring all-reduce of one message: startup, transfer, local reduction (DuetServe 4.1)."""
        n = self.gpus
        if n == 1:
            return 0.0
        transfer_s = 2.0 * (n - 1) * message_bytes / (n * self.link_bytes_per_s)
        return 2.0 * (n - 1) * self.startup_s + transfer_s + n * (n - 1) * message_bytes / flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Fixed costs of a step in seconds; they do not shrink with more SMs."""

    graph_launch_s: float
    """Launching one captured decode step (MuxWise 3.2.2: under 0.5 ms)."""
    layer_launch_s: float
    """Launching one prefill layer from the CPU; a layer never runs faster than that."""
    host_step_s: float
    """CPU work between two split decode steps, when nothing is launched ahead."""
    layer_fixed_s: float
    """Gaps between the kernels of one layer inside a captured graph."""
    switch_s: float
    """Changing the partition group, once both streams are drained."""
    fused_graph_tokens: int = 0
    """Fused batches of at most so many tokens are replayed from graphs, not launched layer by layer."""
