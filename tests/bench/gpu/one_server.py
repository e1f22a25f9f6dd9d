"""One arm's server with its link: started, perhaps ahead of its time, and served from."""

from __future__ import annotations

import contextlib
import tempfile
import time
from argparse import Namespace
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ahead import Gate
from arms import HOST
from model_folder import write_model_folder
from runs import Run
from server import free_port, healthy, started


@dataclass(frozen=True, slots=True, kw_only=True)
class OneServer:
    """A process that serves, or will once its gate opens."""

    base_url: str
    process: Process
    log: Path
    link: Any
    """The daemon's end, for an arm with a policy; else None."""
    gate: Gate | None

    async def serve(self, *, within_s: float) -> float:
        """Let it use the GPU, and wait until it serves; the seconds that took. Raises: ServerError."""
        began_s = time.monotonic()
        if self.gate is not None:
            await self.gate.open()
        await healthy(self.base_url, self.process, self.log, within_s)
        return time.monotonic() - began_s


@contextlib.asynccontextmanager
async def one_server(run: Run, options: Namespace, *, is_ahead: bool) -> AsyncIterator[OneServer]:
    """Start the server of a run; it ends with the block."""
    port = free_port()
    model = write_model_folder(run.model, options.work / run.model, **options.config)
    async with contextlib.AsyncExitStack() as stack:
        # A socket's path has at most 107 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdm")))
        link, address = None, None
        if run.arm.policy is not None:
            from link import listening  # stock arms run where pdmuxd is not installed

            address = f"ipc://{folder}/engine"
            link = await stack.enter_async_context(listening(address))
        gate = Gate(path=folder / "gate") if is_ahead else None
        environment = run.arm.environment(cpu=options.cpu, tp_size=run.tp_size)
        if gate is not None:
            environment = gate.environment(environment, run.tp_size)
        command = run.arm.command(
            model=model, port=port, link=address, tp_size=run.tp_size, cpu=options.cpu, extra=options.extra
        )
        log = options.log_dir / f"{run.model}-{run.arm.server}.log"
        process = await stack.enter_async_context(started(command, environment=environment, log=log))
        yield OneServer(base_url=f"http://{HOST}:{port}", process=process, log=log, link=link, gate=gate)
