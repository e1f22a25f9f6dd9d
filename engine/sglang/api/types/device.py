"""What computes: tensors, events and streams of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

Tensor: TypeAlias = Any
"""torch.Tensor, which the environment of the checks does not have."""
Event: TypeAlias = Any
"""torch.cuda.Event; on a CPU an instant."""
Stream: TypeAlias = Any
"""torch.cuda.Stream; on a CPU a stand-in."""


class DeviceModule(Protocol):
    """`torch.cuda`, or the CPU's part of PyTorch."""

    Event: Callable[[], Event]
