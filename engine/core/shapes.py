"""What a model and a device are, as far as latency depends on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdmuxd.engine.core.errors import ProfileError

_STRAIGHT = 1e-6
"""A smaller curvature counts as none: dividing by it would give rounding errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense decoder-only transformer (the Llama family)."""

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

    @property
    def kv_bytes_per_token(self) -> int:
        """Key and value of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_value

    @property
    def layer_weights(self) -> int:
        """Weights of the linear operators of one layer."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate


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

    def __post_init__(self) -> None:
        for field in ("total_sms", "min_sms", "multiple_sms", "flops", "bytes_per_s", "bandwidth_curvature"):
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
