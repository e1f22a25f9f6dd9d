"""A second plugin for SGLang, beside pdmuxd's own: the CPU stand-in's work ends a while after its launch.

The stand-in's own work is over when the launch returns, so that no prefill is ever in flight there when the
next is to be launched. `test_late_device.py` and `test_tensor_parallel.py` start servers with this plugin.
"""

from __future__ import annotations

import time
from typing import Any

LATE_S = 0.02
"""Some decode steps of the tiny model."""
SAYS = "late device: a prefill is launched behind another"
NAME = "pdmuxd_late_device"


def register() -> None:
    """Called by SGLang in each of its processes, before any stream or loop is made."""
    from pdmuxd.engine.loop.prefill import PrefillStage
    from pdmuxd.engine.sglang.streams.cpu import CpuStreams

    def is_done(_streams: Any, event: float) -> bool:
        return time.perf_counter() - event >= LATE_S

    def wait(_streams: Any, event: float) -> None:
        time.sleep(max(0.0, LATE_S - (time.perf_counter() - event)))

    let_end = PrefillStage.let_end

    def let_end_and_say(stage: PrefillStage) -> None:
        let_end(stage)
        print(SAYS, flush=True)

    CpuStreams.is_done, CpuStreams.wait = is_done, wait  # type: ignore[method-assign]
    PrefillStage.let_end = let_end_and_say  # type: ignore[method-assign]
