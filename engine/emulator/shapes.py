"""The models and devices that profiles are derived for, and where their numbers come from."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.guard import UNMEASURED_RATIO
from pdmuxd.engine.core.shapes import DeviceShape, Experts, ModelShape, Overheads, TensorParallel

LLAMA_8B = ModelShape(
    name="llama-8b",
    layers=32,
    hidden=4096,
    intermediate=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    max_context_tokens=131072,
)
CODELLAMA_34B = ModelShape(
    name="codellama-34b",
    layers=48,
    hidden=8192,
    intermediate=22016,
    heads=64,
    kv_heads=8,
    head_dim=128,
    vocab=32000,
    max_context_tokens=131072,
)
LLAMA_70B = ModelShape(
    name="llama-70b",
    layers=80,
    hidden=8192,
    intermediate=28672,
    heads=64,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    max_context_tokens=131072,
)
QWEN3_8B = ModelShape(
    name="qwen3-8b",
    layers=36,
    hidden=4096,
    intermediate=12288,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=151936,
    max_context_tokens=131072,
)
QWEN3_14B = ModelShape(
    name="qwen3-14b",
    layers=40,
    hidden=5120,
    intermediate=17408,
    heads=40,
    kv_heads=8,
    head_dim=128,
    vocab=151936,
    max_context_tokens=131072,
)

QWEN3_30B_A3B = ModelShape(
    name="qwen3-30b-a3b",
    layers=48,
    hidden=2048,
    intermediate=6144,
    heads=32,
    kv_heads=4,
    head_dim=128,
    vocab=151936,
    max_context_tokens=131072,
    experts=Experts(count=128, per_token=8, intermediate=768),
)

COMPUTE_SHARE, BANDWIDTH_SHARE = 0.70, 0.85
"""Of the data sheet's peak, what large matrix products and streaming reads achieve."""


def _hopper(name: str, bytes_per_s: float) -> DeviceShape:
    """989 TFLOP/s dense bf16 and 132 SMs (NVIDIA's data sheets of H100 SXM and H200).

    Bandwidth curvature: 20% of the SMs reach 60% of the bandwidth (DuetServe figure 4).
    """
    return DeviceShape(
        name=name,
        total_sms=132,
        min_sms=8,
        multiple_sms=8,
        flops=COMPUTE_SHARE * 989e12,
        bytes_per_s=BANDWIDTH_SHARE * bytes_per_s,
        bandwidth_curvature=4.5,
    )


H200 = _hopper("NVIDIA H200", 4.8e12)
H100 = _hopper("NVIDIA H100", 3.35e12)
# 312 TFLOP/s, 2,039 GB/s, 108 SMs (data sheet of the A100 80GB SXM); DRIFT 3.4 takes 320 and 2,039.
A100 = DeviceShape(
    name="NVIDIA A100",
    total_sms=108,
    min_sms=4,
    multiple_sms=2,
    flops=COMPUTE_SHARE * 312e12,
    bytes_per_s=BANDWIDTH_SHARE * 2.039e12,
    bandwidth_curvature=4.5,
)

# MuxWise 3.2.2: a captured decode step launches in under 0.5 ms, the 80 layers of a 70B prefill in tens of
# milliseconds. host_step_s: upstream pdmux decodes 1.5 to 2 ms slower per step than stock at low load.
OVERHEADS = Overheads(
    graph_launch_s=0.0004,
    layer_launch_s=0.0003,
    host_step_s=0.0018,
    layer_fixed_s=0.00002,
    switch_s=0.00005,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model on so many GPUs of a kind."""

    model: ModelShape
    device: DeviceShape
    hbm_bytes: float
    guard_default_ratio: float
    """Largest slowdown that MuxWise 3.3.2 saw: 1.2 on A100, 1.3 on H100."""
    tensor_parallel: TensorParallel


DEPLOYMENTS = {
    "h200-llama-8b": Deployment(
        model=LLAMA_8B,
        device=H200,
        hbm_bytes=141e9,
        guard_default_ratio=UNMEASURED_RATIO,
        tensor_parallel=TensorParallel(),
    ),
    "h200-codellama-34b": Deployment(
        model=CODELLAMA_34B,
        device=H200,
        hbm_bytes=141e9,
        guard_default_ratio=UNMEASURED_RATIO,
        tensor_parallel=TensorParallel(),
    ),
    "h200-qwen3-8b": Deployment(
        model=QWEN3_8B,
        device=H200,
        hbm_bytes=141e9,
        guard_default_ratio=UNMEASURED_RATIO,
        tensor_parallel=TensorParallel(),
    ),
    "h200-qwen3-14b": Deployment(
        model=QWEN3_14B,
        device=H200,
        hbm_bytes=141e9,
        guard_default_ratio=UNMEASURED_RATIO,
        tensor_parallel=TensorParallel(),
    ),
    "h200-qwen3-30b-a3b": Deployment(
        model=QWEN3_30B_A3B,
        device=H200,
        hbm_bytes=141e9,
        guard_default_ratio=UNMEASURED_RATIO,
        tensor_parallel=TensorParallel(),
    ),
    "h100-qwen3-8b": Deployment(
        model=QWEN3_8B,
        device=H100,
        hbm_bytes=80e9,
        guard_default_ratio=UNMEASURED_RATIO,
        tensor_parallel=TensorParallel(),
    ),
    "8xa100-llama-70b": Deployment(
        model=LLAMA_70B,
        device=A100,
        hbm_bytes=80e9,
        guard_default_ratio=1.2,
        tensor_parallel=TensorParallel(gpus=8, startup_s=3e-6, link_bytes_per_s=300e9),
    ),
}
