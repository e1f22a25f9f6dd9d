"""A plugin for SGLang, stock or pdmuxd's, with which any class has weights under which every token matters.

SGLang's own dummy weights (`--load-format dummy`) are so small that answers hardly depend on prompts. Both
servers of a comparison start with it, so that their weights are the same. With `WORKSPACE` in the
environment, a layer has a workspace like Marlin's, which prefill and decode would share; with `SCRATCH`, one
of a name that nobody knows; with `WEIGHT`, weights are so large, over the root of their width (else 1.6).
"""

from __future__ import annotations

import os
from typing import Any

WORKSPACE, SCRATCH = "PDMUXD_TEST_WORKSPACE", "PDMUXD_TEST_SCRATCH"
WEIGHT = "PDMUXD_TEST_WEIGHT"
NAME = "pdmuxd_made_up_weights"


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "sglang.srt.model_executor.model_runner.ModelRunner.load_model", _weigh, HookType.AFTER
    )


def _weigh(_result: Any, runner: Any, *_args: Any, **_kwargs: Any) -> None:
    import torch

    if os.environ.get(WORKSPACE):
        next(m for m in runner.model.modules() if hasattr(m, "quant_method")).workspace = torch.zeros(1)
    if os.environ.get(SCRATCH):
        _give_scratch(next(m for m in runner.model.modules() if hasattr(m, "input_size")))
    chance, weight = torch.Generator().manual_seed(3), float(os.environ.get(WEIGHT, 1.6))
    with torch.no_grad():
        for name, parameter in runner.model.named_parameters():
            if parameter.is_floating_point() and parameter.dim() >= 2:
                made = torch.randn(parameter.shape, generator=chance)
                parameter.copy_(made * weight * parameter.shape[-1] ** -0.5)
            elif parameter.dim() == 1 and name.endswith("norm.weight"):
                parameter.fill_(1.0)  # as small as SGLang's own, layers would add nothing
        if hasattr(runner.model, "post_load_weights"):
            runner.model.post_load_weights()  # makes what MLA absorbs


def _give_scratch(layer: Any) -> None:
    """A layer whose product goes through memory of its own, whoever calls it."""
    import torch

    layer.products_room = torch.zeros(1 << 20)
    apply = layer.quant_method.apply

    def through_scratch(one: Any, rows: Any, *given: Any) -> Any:
        product = apply(one, rows, *given)
        if one is not layer:
            return product
        room = layer.products_room[: product.numel()].view(product.shape)
        room.copy_(product)
        return room.clone()

    layer.quant_method.apply = through_scratch
