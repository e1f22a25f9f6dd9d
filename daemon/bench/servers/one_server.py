"""One arm's server with its link: started, perhaps ahead of its time, and served from; one at a time."""

from __future__ import annotations

import contextlib
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.daemon.bench.options import RunOptions
from pdmuxd.daemon.bench.results import Run
from pdmuxd.daemon.bench.servers.ahead import Gate
from pdmuxd.daemon.bench.servers.arms import HOST
from pdmuxd.daemon.bench.servers.link import Link, listening
from pdmuxd.daemon.bench.servers.models import ServedModel
from pdmuxd.daemon.bench.servers.server import healthy, started
from pdmuxd.daemon.bench.servers.stall_trace import watched
from pdmuxd.daemon.ports import free_port

ModelOf = Callable[[str], ServedModel]
"""From its name to a model, its folder written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneServer:
    """A process that serves, or will once its gate opens."""

    base_url: str
    process: Process
    log: Path
    link: Link | None
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
async def one_server(
    run: Run, options: RunOptions, model_of: ModelOf, *, is_ahead: bool
) -> AsyncIterator[OneServer]:
    """Start the server of a run; it ends with the block."""
    port = free_port()
    model = model_of(run.model)
    async with contextlib.AsyncExitStack() as stack:
        # A socket's path has at most 107 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdm")))
        link, address = None, None
        if run.arm.policy is not None:
            address = f"ipc://{folder}/engine"
            link = await stack.enter_async_context(listening(address))
        gate = Gate(path=folder / "gate") if is_ahead else None
        environment = run.arm.environment(cpu=options.cpu, tp_size=run.tp_size)
        if gate is not None:
            environment = gate.environment(environment, run.tp_size)
        if options.stalls is not None:
            environment = watched(environment, options.stalls)
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
        process = await stack.enter_async_context(started(command, environment=environment, log=log))
        yield OneServer(base_url=f"http://{HOST}:{port}", process=process, log=log, link=link, gate=gate)


class Servers:
    """The server that is served from, and the next one where that was started ahead."""

    def __init__(self, options: RunOptions, model_of: ModelOf) -> None:
        self._options = options
        self._model_of = model_of
        self._may_be_ahead = not options.no_ahead
        self._next: tuple[tuple[str, int, str], contextlib.AsyncExitStack, OneServer] | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether a server was started ahead and not taken."""
        return self._next is not None

    def no_more_ahead(self) -> None:
        """It went wrong once."""
        self._may_be_ahead = False

    async def start_ahead(self, run: Run) -> None:
        """Start the server of a run that comes later."""
        if self._may_be_ahead and run.arm.server != "emulator":
            stack = contextlib.AsyncExitStack()
            server = await stack.enter_async_context(
                one_server(run, self._options, self._model_of, is_ahead=True)
            )
            self._next = run.server, stack, server

    async def take(self, run: Run) -> tuple[contextlib.AsyncExitStack, OneServer]:
        """The server that was started ahead, if it is this run's; else a new one. The caller closes it."""
        if self._next is not None and self._next[0] == run.server:
            _, stack, server = self._next
            self._next = None
            if server.process.returncode is None:
                return stack, server
            await stack.aclose()
        await self.forget()
        stack = contextlib.AsyncExitStack()
        return stack, await stack.enter_async_context(
            one_server(run, self._options, self._model_of, is_ahead=False)
        )

    async def forget(self) -> None:
        """End a server that was started ahead and not taken."""
        if self._next is not None:
            await self._next[1].aclose()
            self._next = None
