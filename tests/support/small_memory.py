"""A second plugin for SGLang, beside pdmuxd's own: memory for short prefills alone, which a CPU never lacks.

`test_long_prompts.py` starts a server with it.
"""

from __future__ import annotations

from typing import Any

WHOLE_TOKENS = 250
"""Of new tokens; prompts of the tests have up to 900."""
NAME = "pdmuxd_small_memory"


def register() -> None:
    """Called by SGLang in each of its processes, before any loop is made."""
    from pdmuxd.engine.sglang.engine_info import Activations, EngineInfo
    from pdmuxd.engine.sglang.internals import describe

    engine_info = describe.engine_info

    def of_a_small_gpu(scheduler: Any, table: Any, **changes: Any) -> EngineInfo:
        four_fifths = Activations(free_bytes=10 * WHOLE_TOKENS, bytes_per_token=8.0)
        return engine_info(scheduler, table, **changes).holding(four_fifths)

    describe.engine_info = of_a_small_gpu
