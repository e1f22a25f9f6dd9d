"""The gateway in a process of its own, in front of an engine that somebody else started.

Its arguments: the engine's URL, its key, the model; a socket where the scheduler's tokens come in, if any;
the tenant's TBT target in seconds; and, if it is to watch the host and write several steps at once as the
daemon does, the share of the target that an event may wait. It prints its URL.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

import uvloop
from lone_gateway import lone_gateway

from pdmuxd.daemon.duties.host_load import HostLoad, duties
from pdmuxd.daemon.process.logging import configure_logging
from pdmuxd.daemon.tokens import receiver as receivers
from pdmuxd.engine.link.garbage import GarbageHolder


async def main(
    base_url: str, key: str, model: str, tokens: str | None = None, tbt_s: str = "0.05", paced: str = ""
) -> None:
    """Serve until standard input ends."""
    configure_logging("info", "console")
    path = None if tokens is None else Path(tokens)
    async with (
        lone_gateway(base_url, key, model, tokens=path, tbt_s=float(tbt_s)) as (url, receiver),
        AsyncExitStack() as stack,
    ):
        if paced and receiver is not None:
            receivers.PATIENCE_RATIO = float(paced)
            for duty in duties(HostLoad(receiver.counts.pace)):
                duty.start(stack)
        GarbageHolder("gateway", is_idle=lambda: False).hold()
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
