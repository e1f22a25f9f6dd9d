"""One arm's server with its link: started, and served from."""

from __future__ import annotations

import contextlib
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.daemon.bench.arms import HOST
from pdmuxd.daemon.bench.models import ServedModel
from pdmuxd.daemon.bench.options import RunOptions
from pdmuxd.daemon.bench.results import Run
from pdmuxd.daemon.bench.servers.link import Link, listening
from pdmuxd.daemon.bench.servers.server import healthy, started
from pdmuxd.daemon.process.ports import free_port

ModelOf = Callable[[str], ServedModel]
"""From its name to a model, its folder written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneServer:
    """A process that serves, or will."""

    base_url: str
    process: Process
    log: Path
    link: Link | None
    """The daemon's end, for an arm with a policy; else None."""

    async def serve(self, *, within_s: float) -> float:
        """Wait until it serves; the seconds that took. Raises: ServerError."""
        began_s = time.monotonic()
        await healthy(self.base_url, self.process, self.log, within_s)
        return time.monotonic() - began_s


@contextlib.asynccontextmanager
async def one_server(
    run: Run, options: RunOptions, model_of: ModelOf, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[OneServer]:
    """Start the server of a run, by default with its arm's environment; it ends with the block."""
    port = free_port()
    model = model_of(run.model)
    async with contextlib.AsyncExitStack() as stack:
        # A socket's path has at most 107 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdm")))
        link, address = None, None
        if run.arm.policy is not None:
            address = f"ipc://{folder}/engine"
            link = await stack.enter_async_context(listening(address))
        around = dict(environment or run.arm.environment(cpu=options.cpu, tp_size=run.tp_size))
        command = run.arm.command(
            model=model,
            port=port,
            link=address,
            tp_size=run.tp_size,
            cpu=options.cpu,
            extra=options.extra,
            python=options.python,
            kernels_file=options.kernels_file,
        )
        log = options.log_dir / f"{run.model}-{run.arm.server}.log"
        process = await stack.enter_async_context(started(command, environment=around, log=log))
        yield OneServer(base_url=f"http://{HOST}:{port}", process=process, log=log, link=link)
