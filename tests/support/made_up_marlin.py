"""A plugin for SGLang, stock or pdmuxd's, under which models of GPTQ's 4 bits are served on a CPU by SGLang's
classes for Marlin, with weights under which every token matters.

The kernel is plain PyTorch. It takes its locks as Marlin does: they must be zero when it begins, and are when
it ends. It ends the server if a paused forward and anyone else are ever launched with the same locks.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import made_up_weights

NAME = "pdmuxd_made_up_marlin"
SMS = 132
_launches: Counter[str] = Counter()
_locks: dict[str, set[int]] = {"prefill": set(), "others": set()}


class _Type(str):
    """A type as SGLang names it where its kernels are not installed."""

    size_bits = 4


def register() -> None:
    """Called by SGLang in each of its processes."""
    import torch
    from sglang.srt.hardware_backend.gpu.quantization import gptq_kernels
    from sglang.srt.layers.quantization import gptq, marlin_utils, marlin_utils_fp4, marlin_utils_fp8
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def locks(device: Any, max_blocks_per_sm: int = 1) -> Any:
        return torch.zeros(SMS * max_blocks_per_sm, dtype=torch.int, device=device)

    marlin_utils.get_device_capability = lambda: (9, 0)
    config = gptq.gptq.GPTQMarlinConfig
    config.get_supported_act_dtypes = classmethod(lambda _: [torch.float32])
    config.TYPE_MAP = {(4, True): _Type("uint4b8")}
    for module in (marlin_utils, gptq_kernels):
        module.marlin_make_workspace = locks
    gptq_kernels.gptq_marlin_repack = lambda weight, **_: weight
    gptq_kernels.marlin_permute_scales = lambda scales, **_: scales
    for module in (marlin_utils, marlin_utils_fp8, marlin_utils_fp4):
        module.gptq_marlin_gemm = _product
    made_up_weights.register()
    HookRegistry.register(
        "sglang.srt.model_executor.model_runner.ModelRunner.load_model", _weigh, HookType.AFTER
    )


def _product(
    a: Any,
    c: Any,
    b_q_weight: Any,
    b_scales: Any,
    global_scale: Any,
    b_zeros: Any,
    g_idx: Any,
    perm: Any,
    workspace: Any,
    b_q_type: Any,
    size_m: int,
    size_n: int,
    size_k: int,
    **_: Any,
) -> Any:
    import torch

    _note(workspace)
    # The inputs of 8 weights of one output are in one word.
    words = b_q_weight.unsqueeze(1) >> torch.arange(0, 32, 4, dtype=torch.int32).view(1, 8, 1)
    weights = ((words & 15) - 8).reshape(size_k, size_n).to(a.dtype)
    workspace.add_(1)
    product = a @ (weights * b_scales.repeat_interleave(size_k // b_scales.shape[0], 0))
    workspace.sub_(1)
    return product


def _note(workspace: Any) -> None:
    from greenlet import getcurrent

    who, other = ("prefill", "others") if getcurrent().parent is not None else ("others", "prefill")
    _locks[who].add(workspace.data_ptr())
    _launches[who] += 1
    wrong = workspace.data_ptr() in _locks[other] or bool(workspace.any()) or workspace.numel() < SMS
    if wrong:
        raise SystemExit(f"Marlin's locks of {other} were taken by {who}")
    if _launches[who].bit_count() == 1:
        sys.stderr.write(f"MARLIN {who} {_launches[who]} launches, {len(_locks[who])} locks\n")


def _weigh(_result: Any, runner: Any, *_args: Any, **_kwargs: Any) -> None:
    import torch

    chance = torch.Generator().manual_seed(5)
    for name, parameter in sorted(runner.model.named_parameters()):
        if name.endswith("qweight"):
            parameter.data.copy_(torch.randint(-(2**31), 2**31, parameter.shape, generator=chance))
        elif name.endswith("scales"):
            inputs = dict(runner.model.named_parameters())[name.replace("scales", "qweight")].shape[0] * 8
            parameter.data.fill_(0.35 * inputs**-0.5)
