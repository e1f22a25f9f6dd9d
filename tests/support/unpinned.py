"""For an SGLang on the CPU that serves adapters: it pins memory, which takes a GPU's driver."""

from __future__ import annotations

from typing import Any

NAME = "unpinned"


def register() -> None:
    """Memory stays as it is."""
    import torch  # SGLang's environment has it, not the tests'

    torch.Tensor.pin_memory = lambda self, *_, **__: self
    for name in ("zeros", "tensor", "empty", "ones", "full"):
        setattr(torch, name, _without(getattr(torch, name)))


def _without(make: Any) -> Any:
    def made(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return make(*args, **kwargs)

    return made
