"""Starting a server while another is still measured: its imports overlap, its use of the GPU does not.

Half of a start is Python's imports, on one core each in two processes. A server that is started ahead does
them beside the last run of the one before it, and its scheduler waits at a gate; the gate opens when that
server is gone and its memory is free. So the last run of a server shares the host with the next one's
imports: `--no-ahead` measures without.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_servers.options import LAB, RunOptions
from pdmuxd.daemon.bench.results import Run
from pdmuxd.daemon.bench.servers.nvidia import FREE_BYTES, used_bytes
from pdmuxd.daemon.bench.servers.one_server import ModelOf, OneServer, one_server

GATE = LAB / "in_sglang" / "gate"
_LOOK_S, _LOOKS = 0.3, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A file that schedulers wait for."""

    path: Path

    def environment(self, environment: dict[str, str], tp_size: int) -> dict[str, str]:
        """A server's, so that it waits here."""
        own = {"PDMUXD_GATE": str(self.path), "PDMUXD_GATE_RANKS": str(tp_size)}
        return by_the_gate(environment) | own

    async def open(self) -> None:
        """Once the GPU's memory is free, or that takes too long."""
        for _ in range(_LOOKS):
            if used_bytes() < FREE_BYTES:
                break
            await asyncio.sleep(_LOOK_S)
        self.path.touch()


def by_the_gate(environment: Mapping[str, str]) -> dict[str, str]:
    """A server's environment whose Pythons run what is in GATE at their start."""
    paths = [
        path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(GATE))
    ]
    return dict(environment) | {"PYTHONPATH": os.pathsep.join((str(GATE), *paths))}


def watched(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """A server's environment, so that its processes write there where they stand."""
    return by_the_gate(environment) | {"PDMUXD_STALLS": str(folder.absolute())}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedServer(OneServer):
    """A server whose scheduler waits at a gate, which opens when it shall serve."""

    gate: Gate

    async def serve(self, *, within_s: float) -> float:
        """Let it use the GPU, and wait until it serves; the seconds that took. Raises: ServerError."""
        await self.gate.open()
        return await OneServer.serve(self, within_s=within_s)


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
        """Start none ahead from here on: one that was has failed."""
        self._may_be_ahead = False

    async def start_ahead(self, run: Run) -> None:
        """Start the server of a run that comes later."""
        if self._may_be_ahead and run.arm.server != "emulator":
            stack = contextlib.AsyncExitStack()
            self._next = run.server, stack, await stack.enter_async_context(self._gated(run))

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
        started = one_server(run, self._options, self._model_of, environment=self._environment(run))
        return stack, await stack.enter_async_context(started)

    async def forget(self) -> None:
        """End a server that was started ahead and not taken."""
        if self._next is not None:
            await self._next[1].aclose()
            self._next = None

    def _environment(self, run: Run) -> dict[str, str]:
        found = run.arm.environment(cpu=self._options.cpu, tp_size=run.tp_size)
        return found if self._options.stalls is None else watched(found, self._options.stalls)

    @contextlib.asynccontextmanager
    async def _gated(self, run: Run) -> AsyncIterator[GatedServer]:
        with tempfile.TemporaryDirectory(prefix="pdm") as folder:
            gate = Gate(path=Path(folder, "gate"))
            environment = gate.environment(self._environment(run), run.tp_size)
            async with one_server(run, self._options, self._model_of, environment=environment) as server:
                known = {field.name: getattr(server, field.name) for field in dataclasses.fields(server)}
                yield GatedServer(gate=gate, **known)
