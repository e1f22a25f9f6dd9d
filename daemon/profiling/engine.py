"""An engine that is started to be measured: no gateway, no settings, one question at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pdmuxd.daemon.process.ports import free_port
from pdmuxd.daemon.supervisor import child
from pdmuxd.daemon.supervisor.enginelog import EngineLog
from pdmuxd.daemon.supervisor.plan import KEY_VARIABLE, EnginePlan
from pdmuxd.engine.core.errors import EngineError, EngineLostError, LinkError
from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.link.socket import DaemonEnd

ANSWER_TIMEOUT_S = 120.0
"""Far more than any point of a campaign takes."""


class MeasuringEngine:
    """Answers questions; from `measuring_engine`."""

    def __init__(self, link: DaemonEnd, process: child.EngineProcess, log: EngineLog) -> None:
        self._link = link
        self._process = process
        self._log = log

    async def hello(self, timeout_s: float) -> Hello:
        """How it introduces itself. Raises: EngineError if it does not within `timeout_s`."""
        while True:
            message = await self._receive(timeout_s, "did not introduce itself")
            if isinstance(message, Hello):
                return message

    async def measure(self, asked: Measure) -> Measured:
        """Measure one point. Raises: EngineError if the engine dies, or does not answer."""
        try:
            await self._link.send(asked)
        except LinkError as error:
            raise EngineLostError(f"{error}; its last words: {self._log.last_words()}") from error
        while True:
            message = await self._receive(ANSWER_TIMEOUT_S, f"did not answer point {asked.point_id}")
            if isinstance(message, Measured) and message.point_id == asked.point_id:
                return message

    async def _receive(self, timeout_s: float, failure: str) -> object:
        received = asyncio.ensure_future(self._link.receive())
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((received, ended), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if received.done():
                return received.result()
        except LinkError as error:
            raise EngineError(f"the engine cannot be understood: {error}") from error
        finally:
            for task in (received, ended):
                task.cancel()
            await asyncio.gather(received, ended, return_exceptions=True)
        if self._process.has_ended:
            how = child.describe_exit(self._process.returncode)
            raise EngineLostError(f"the engine {how}; its last words: {self._log.last_words()}")
        raise EngineError(f"the engine {failure} within {timeout_s:g} s: {self._log.last_words()}")


@asynccontextmanager
async def measuring_engine(plan: EnginePlan) -> AsyncIterator[MeasuringEngine]:
    """Start an engine, and end it whenever the block is left. Raises: EngineError, LinkError."""
    socket_path = plan.runtime_dir / f"engine-{secrets.token_hex(4)}.sock"
    address = f"ipc://{socket_path}"
    log = EngineLog(plan.log_path)
    async with contextlib.AsyncExitStack() as stack:
        link = DaemonEnd(address)
        stack.callback(socket_path.unlink, missing_ok=True)
        stack.callback(link.close)
        command = plan.command(free_port(), address, os.getpid())
        environment = child.engine_environment({KEY_VARIABLE: secrets.token_urlsafe(32)})
        descriptor = log.open()
        try:
            process = child.start(command, environment=environment, log=descriptor)
        except OSError as error:
            raise EngineError(f"the engine cannot be started: {command[0]}: {error.strerror}") from error
        finally:
            os.close(descriptor)
        stack.push_async_callback(child.end, process, grace_s=plan.stop_grace_s)
        yield MeasuringEngine(link, process, log)
