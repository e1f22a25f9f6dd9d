"""FlashInfer's buffers by name: one for prefill and one for whatever else runs, not one for the process.

Its kernels write there what one of their blocks tells the others: of top-k, a count of the blocks that have
arrived, for which each waits. With one buffer, the first tokens of a prefill and those of the decode step
beside it would count together (FlashInfer 0.7.2, `sampling.py`, by reading).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from pdmuxd.engine.sglang.api.types.process import FlashInferUtils
from pdmuxd.engine.sglang.streams.base import LaunchStreams


def keep_apart(utils: FlashInferUtils, is_prefill: Callable[[], bool]) -> None:
    """Give prefill buffers of its own; what there is already stays the others'."""
    utils._cache_buf = _ByRole(utils._cache_buf, is_prefill)


def prefill_is_current(streams: LaunchStreams) -> Callable[[], bool]:
    """Whether the current stream is one of prefill's."""
    handles = frozenset(group.prefill.cuda_stream for group in streams.groups if group.prefill_sms)
    return lambda: torch.cuda.current_stream().cuda_stream in handles


class _ByRole(dict[Any, Any]):
    """A dictionary as FlashInfer uses it, which looks up another key for prefill."""

    def __init__(self, found: Iterable[Any], is_prefill: Callable[[], bool]) -> None:
        super().__init__(found)
        self._is_prefill = is_prefill

    def get(self, key: object, default: Any = None) -> Any:  # noqa: ANN401 - as dict
        """The role's own."""
        return super().get(self._of_role(key), default)

    def __setitem__(self, key: object, value: object) -> None:
        super().__setitem__(self._of_role(key), value)

    def __getitem__(self, key: object) -> Any:  # noqa: ANN401 - as dict
        return super().__getitem__(self._of_role(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._of_role(key))

    def _of_role(self, key: object) -> object:
        return ("prefill", key) if self._is_prefill() else key
