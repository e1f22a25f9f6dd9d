"""The GPU's memory for the activations of prefills: it is made free when a prefill begins.

PyTorch keeps, for each stream, what a prefill there took for the next one. Once the driver has none left, it
gives back all that no tensor has, of all streams, and waits until the device has nothing to do: 101 ms beside
92 ms of work, 217 beside 189; on an idle device 8 ms for 11.6 GiB. Taking memory takes 0.1 to 2 ms, whatever
runs (one H200, driver 580, PyTorch 2.14, 2026-11-28). When a prefill begins, at most the last decode step
runs, which its turn waits for in any case: none is begun behind layers of another one for which memory would
have to be given back. One that was begun so held decode up for 217 ms, one beside decode alone for 25
(docs/measurements/h200.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pdmuxd.engine.sglang.api.types.device import Stream
from pdmuxd.engine.sglang.engine_info import ACTIVATIONS_SHARE

_log = logging.getLogger(__name__)


class ActivationMemory:
    """What one scheduler's prefills took on each stream."""

    def __init__(self, free_bytes: Callable[[], int], give_back: Callable[[], None]) -> None:
        """`free_bytes` asks the driver; `give_back` gives it all that PyTorch keeps and no tensor has."""
        self._free_bytes = free_bytes
        self._give_back = give_back
        self._kept_tokens: dict[Stream, int] = {}
        self._has_told = False
        self.bytes_per_token = 0.0
        """Kept on a stream per new token of its largest prefill; 0 until measured, and on a CPU."""

    def is_short(self, stream: Stream, new_tokens: int) -> bool:
        """Whether memory has to be given back before a prefill of so many tokens is launched."""
        return self._takes(stream, new_tokens) and self._is_more_than_free(new_tokens)

    def prepare(self, stream: Stream, new_tokens: int) -> None:
        """Make sure that a prefill of so many tokens, launched next, finds memory on its stream or at the
        driver."""
        if not self._takes(stream, new_tokens):
            return
        if self._is_more_than_free(new_tokens):
            self._give_back()
            self._kept_tokens.clear()
            if not self._has_told:
                _log.info(
                    "pdmuxd: the prefills of all partitions together fill the memory: it is given back when "
                    "a prefill begins, which takes some 25 ms; a lower --mem-fraction-static avoids it"
                )
            self._has_told = True
        self._kept_tokens[stream] = new_tokens

    def _takes(self, stream: Stream, new_tokens: int) -> bool:
        """Whether it needs more than its stream keeps."""
        return bool(self.bytes_per_token) and new_tokens > self._kept_tokens.get(stream, 0)

    def _is_more_than_free(self, new_tokens: int) -> bool:
        return self.bytes_per_token * new_tokens > ACTIVATIONS_SHARE * self._free_bytes()
