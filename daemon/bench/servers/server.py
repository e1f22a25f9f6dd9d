"""A server process of one arm: started, waited for, and ended with everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from asyncio.subprocess import STDOUT, Process
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from pdmuxd.daemon.bench.arms import HOST, Arm
from pdmuxd.engine.core.errors import EngineError

_PR_SET_PDEATHSIG = 1


class ServerError(EngineError):
    """The server does not come up; the text ends with its last words."""


class ArmError(EngineError):
    """An arm cannot do a run; its server goes on."""


@contextlib.asynccontextmanager
async def running(
    arm: Arm, *, command: list[str], environment: dict[str, str], port: int, log: Path, start_s: float
) -> AsyncIterator[str]:
    """Run a server; yields its address once /health answers 200. Raises: ServerError."""
    began_s = time.monotonic()
    async with started(command, environment=environment, log=log) as process:
        base_url = f"http://{HOST}:{port}"
        await healthy(base_url, process, log, start_s)
        print(f"  {arm.name} serves after {time.monotonic() - began_s:.0f} s", flush=True)
        yield base_url


@contextlib.asynccontextmanager
async def started(command: list[str], *, environment: dict[str, str], log: Path) -> AsyncIterator[Process]:
    """A process with a session of its own, all of which ends with the block."""
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdout=file,
            stderr=STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield process
    finally:
        await _end(process)


async def healthy(base_url: str, process: Process, log: Path, start_s: float) -> None:
    """Wait until a server answers 200 on /health. Raises: ServerError."""
    end_s = time.monotonic() + start_s
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        while time.monotonic() < end_s:
            if process.returncode is not None:
                raise ServerError(f"exited with {process.returncode}: {last_words(log)}")
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.get(f"{base_url}/health") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.3)
    raise ServerError(f"not healthy within {start_s:.0f} s: {last_words(log)}")


def die_with_parent() -> None:
    """A server has a session of its own: without this it would outlive a killed script, and keep the GPU."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _end(process: Process) -> None:
    """Kill it at once: nothing of a server is needed any more, and SGLang would take 5 s over diagnostics."""
    with contextlib.suppress(ProcessLookupError):
        # Also what outlives its leader: the GPU's memory must be free for the next arm.
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def last_words(log: Path) -> str:
    """The end of a log, on one line."""
    return " | ".join(log.read_text(errors="replace").splitlines()[-6:])[-1500:]
