"""uvicorn's servers end at once: each waits a tenth of a second, and hundreds of tests stop one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import uvicorn.server

PART = 0.1
"""Of each of its pauses, after which it looks again whether all connections are closed."""


class _Asyncio:
    """What uvicorn's module calls asyncio."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def sleep(self, seconds: float) -> Awaitable[None]:
        return asyncio.sleep(PART * seconds)


def stop_quickly() -> None:
    """Shorten the pauses of all servers of this process."""
    found: Any = uvicorn.server
    found.asyncio = _Asyncio()
