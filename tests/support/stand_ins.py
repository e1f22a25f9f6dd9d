"""What SGLang's CPU path has no kernel for, in plain PyTorch: for gpt-oss other experts, and attention
without sinks; for DeepSeek latent attention in its absorbed form, which prefills only; for Gemma 3 attention
that reads the mask of its images."""

from __future__ import annotations

import contextlib
import inspect
from types import SimpleNamespace
from typing import Any

import torch

MASKS_IMAGES = "Gemma3ForConditionalGeneration"
STANDS_IN = ("GptOssForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", MASKS_IMAGES)
PREFILLS_ONLY = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")


def stand_in(name: str) -> None:
    """Put it in place for a class, in this process."""
    if name not in STANDS_IN:
        return
    if name == MASKS_IMAGES:
        _read_masks()
        return
    torch.cpu.current_device = torch.cuda.current_device = lambda: "cpu"
    torch.cpu.device = lambda *_: contextlib.nullcontext()
    if "Deepseek" in name:
        from sglang.srt.models import deepseek_v2

        method = deepseek_v2.AttnForwardMethod.MLA
        deepseek_v2.DeepseekV2AttentionMLA.dispatch_attn_forward_method = lambda *_: method
        return
    from sglang.srt.arg_groups import model_hook
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE

    source = inspect.getsource(model_hook)
    for quoted in ('"fa3"', "'fa3'"):
        source = source.replace(f"[{quoted}", f'["torch_native", {quoted}')
        source = source.replace(f"{quoted},", f'{quoted}, "torch_native",')
    exec(compile(source, model_hook.__file__, "exec"), model_hook.__dict__)
    for method_name in ("forward_extend", "forward_decode"):
        _drop_sinks(TorchNativeAttnBackend, method_name)
    FusedMoE.forward = _experts


def _drop_sinks(backend: Any, method_name: str) -> None:
    original = getattr(backend, method_name)

    def without(
        self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, save_kv_cache: bool = True, **_: Any
    ) -> Any:
        return original(self, q, k, v, layer, batch, save_kv_cache)

    setattr(backend, method_name, without)


def _experts(_: Any, hidden_states: Any, topk_output: Any = None, **__: Any) -> Any:
    scores = 1 + 0.1 * topk_output.topk_ids.float() * topk_output.topk_weights.float()
    return hidden_states * scores.sum(-1, keepdim=True).to(hidden_states.dtype).tanh()


def _read_masks() -> None:
    """As Triton's attention, which Gemma 3 sets a mask for: what a token attends to changes its output."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.models import gemma3_mm

    gemma3_mm.TritonAttnBackend = TorchNativeAttnBackend
    extend = TorchNativeAttnBackend.forward_extend

    def begin(self: Any, _: Any) -> None:
        self.forward_metadata = SimpleNamespace(custom_mask=None, mask_indptr=None)

    def masked(self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, *given: Any, **named: Any) -> Any:
        found, told = extend(self, q, k, v, layer, batch, *given, **named), self.forward_metadata
        if told.custom_mask is None:
            return found
        bounds = told.mask_indptr.tolist()
        rows = [
            told.custom_mask[first:end].view(tokens, -1).float().mean(-1)
            for first, end, tokens in zip(bounds, bounds[1:], batch.extend_seq_lens_cpu, strict=False)
        ]
        return found + torch.cat(rows).view(-1, *(found.dim() - 1) * [1])  # a factor would be normalised away

    TorchNativeAttnBackend.init_forward_metadata = begin
    TorchNativeAttnBackend.forward_extend = masked
