"""The GPU's clock and power, read beside the loop: the driver may take milliseconds to answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

EVERY_S = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What the driver said last; None where it says nothing."""

    clock_mhz: int | None = None
    """The clock of the SMs when the driver was asked (NVML's current clock), in MHz."""
    power_w: float | None = None
    """What the board draws (NVML's power usage), in watts: on most GPUs the mean of the last second."""


ReadGpu = Callable[[], GpuReading]
"""Asks the driver; may raise RuntimeError where it cannot answer."""


class GpuGauges:
    """The newest reading. A thread of its own asks; when it is refused it stops asking."""

    def __init__(self, read: ReadGpu | None, *, every_s: float = EVERY_S) -> None:
        self.newest = GpuReading()
        self._read = read
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pdmuxd-gpu-gauges", daemon=True)

    def start(self) -> None:
        """Begin to ask; without a reader there is nothing to do."""
        if self._read is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        """Wait until nothing is asked any more."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _watch(self) -> None:
        while self._read is not None and not self._stopped.is_set():
            try:
                self.newest = self._read()
            except RuntimeError as error:
                _log.warning("pdmuxd: the GPU's clock and power are not read: %s", error)
                self.newest = GpuReading()
                return
            self._stopped.wait(self._every_s)
