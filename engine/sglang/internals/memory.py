"""What work takes of the GPU's memory; on a CPU nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import torch


def free_bytes() -> int:
    """Of this process's GPU."""
    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else 0


class Peak:
    """What is launched within the block takes so many bytes at most, beyond what was taken before it."""

    bytes = 0

    def __enter__(self) -> Self:
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            self._before_bytes = torch.cuda.memory_allocated()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if torch.cuda.is_available():
            self.bytes = torch.cuda.max_memory_allocated() - self._before_bytes
