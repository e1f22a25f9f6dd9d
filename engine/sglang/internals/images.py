"""Prompts with images that SGLang's models must have whole, by themselves: by their class, and by the
attention that the start chose."""

from __future__ import annotations

import sys

import torch

from pdmuxd.engine.sglang.api.types.model import AttentionBackend
from pdmuxd.engine.sglang.api.types.requests import Request
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler


def masks_images(model: torch.nn.Module) -> bool:
    """Whether a model sets masks of its images, as Gemma 3 and 4 do."""
    return hasattr(model, "prepare_attn_masks")


def why_whole(s: Scheduler) -> str:
    """Why prompts with images are neither cut nor in a batch with others; empty if they may be."""
    config, runner = s.model_config, s.tp_worker.model_runner
    if config.is_multimodal and not config.is_multimodal_chunked_prefill_supported:
        return "SGLang cannot cut what this class makes of an image"
    if masks_images(runner.model) and _reads_masks(runner.model, runner.attn_backend):
        return "the tokens of an image attend to each other"
    return ""


def _reads_masks(model: torch.nn.Module, attention: AttentionBackend) -> bool:
    """Whether attention is of the kinds for which the model sets masks: Triton's, which the model's module
    names (any, if it does not), and FlashAttention-4."""
    backend = getattr(attention, "prefill_backend", attention)
    kind = getattr(sys.modules[type(model).prepare_attn_masks.__module__], "TritonAttnBackend", object)
    return isinstance(backend, kind) or getattr(backend, "fa_impl_ver", None) == 4


class WholePrompts:
    """Which requests are prefilled whole, and may be no longer than memory holds."""

    def __init__(self) -> None:
        self.why = ""
        """Empty: none are."""
        self.most_tokens: int | None = None
        """That memory holds; None: any number."""

    def has(self, request: Request) -> bool:
        """Whether a request is one of them."""
        return bool(self.why) and request.multimodal_inputs is not None

    def refusal(self, request: Request) -> str:
        """Why a request cannot be served; empty if it can."""
        tokens, most = len(request.origin_input_ids), self.most_tokens
        if most is None or tokens <= most or not self.has(request):
            return ""
        return (
            f"the prompt has {tokens} tokens with its images, and memory holds {most} at once: "
            f"it cannot be prefilled in parts, since {self.why}"
        )
