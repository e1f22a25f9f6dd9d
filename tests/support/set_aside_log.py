"""A second plugin for SGLang: a late device (`late_device.py`), a line for each overtaken prefill, and the
stacks of all threads in the log on SIGUSR1.

Servers of `nested_prefills.py` run with it.
"""

from __future__ import annotations

from typing import Any

SAYS = "set aside: "
CHUNK_SAYS = "a prompt in chunks sits a step out"
CHUNK_LAST_SAYS = "a prompt in chunks has what others leave of a step"
NAME = "pdmuxd_set_aside_log"
LATE_S = 0.005


def register() -> None:
    """Called by SGLang in each of its processes, before any stream or loop is made."""
    import faulthandler
    import signal

    import late_device

    from pdmuxd.engine.loop.decode import DecodeStage
    from pdmuxd.engine.loop.prefill import PrefillStage

    faulthandler.register(signal.SIGUSR1)
    late_device.LATE_S = LATE_S
    late_device.register()
    preempt, launch_fused = PrefillStage.preempt, DecodeStage.launch_fused

    def preempt_and_say(stage: PrefillStage) -> None:
        preempt(stage)
        print(f"{SAYS}{len(stage.set_aside)}", flush=True)

    def launch_and_say(stage: DecodeStage, decision: Any, *rest: Any) -> Any:
        if decision.preempt:
            print(CHUNK_SAYS, flush=True)
        if decision.chunk_last:
            print(CHUNK_LAST_SAYS, flush=True)
        return launch_fused(stage, decision, *rest)

    PrefillStage.preempt = preempt_and_say  # type: ignore[method-assign]
    DecodeStage.launch_fused = launch_and_say  # type: ignore[method-assign]
