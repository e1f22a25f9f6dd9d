"""SIGTERM in the process that has the HTTP server: SGLang's own way of stopping, without its waits.

SGLang checks every 5 s whether it was told to stop, and then every 5 s whether requests are left. By then a
supervisor has lost its patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.process import TokenizerManager

LOOK_EVERY_S = 0.05


async def end_without_delay(original: Callable[..., Awaitable[None]], manager: TokenizerManager) -> None:
    """Wraps SGLang's watchdog: calls it as soon as it would find nothing left to wait for.

    It ends the schedulers and lets the HTTP server finish its responses. If the server is unhealthy it is
    called at once: requests of a dead scheduler never end.
    """
    unhealthy = sglang().ServerStatus.UnHealthy
    await _until(lambda: manager.gracefully_exit)
    await _until(lambda: not manager.rid_to_state or manager.server_status is unhealthy)
    await original(manager)


async def _until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - SGLang sets fields, no events
        await asyncio.sleep(LOOK_EVERY_S)
