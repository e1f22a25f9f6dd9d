"""The life of the engine process: start, serve, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from pdmuxd.engine.core.errors import LinkError, SettingsError
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.measuring import Noise, measure
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.emulator.server.app import build_app
from pdmuxd.engine.emulator.server.arguments import KEY_VARIABLE, Arguments
from pdmuxd.engine.emulator.server.delivery import Deliveries
from pdmuxd.engine.emulator.server.direct_tokens import DirectTokens
from pdmuxd.engine.emulator.server.driver import WallClockDriver
from pdmuxd.engine.emulator.server.http import HttpServer, address, listen
from pdmuxd.engine.emulator.server.parent import Parent
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.telemetry import Reporter, hello
from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.link.messages import EngineSettings, ToEngine
from pdmuxd.engine.link.socket import EngineEnd

ORPHAN_DRAIN_S = 10.0
"""How long requests in flight may go on when the daemon has died."""
BLOCK_TOKENS = 16
_CLOSE_S = 3
_FLUSH_S = 0.5
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a process consists of, all of it checked and nothing of it running."""

    listener: socket.socket
    parent: Parent
    engine: EmulatedEngine
    driver: WallClockDriver
    link: EngineEnd | None
    key: str | None
    model: str
    noise: Noise


def prepare(arguments: Arguments, cleanup: ExitStack) -> Parts:
    """Make every part that a wrong argument could break; `cleanup` closes them. Raises: SettingsError,
    ProfileError, PolicyError, PartitionError, LinkError, EngineError."""
    parent = Parent(arguments.parent_pid, arguments.link)
    key = os.environ.get(KEY_VARIABLE) or None
    if key is None and arguments.host not in _LOOPBACK:
        raise SettingsError(f"{KEY_VARIABLE} is not set; it must be, to listen on {arguments.host}")
    profile = load_profile(arguments.profile)
    direct = None if arguments.link is None else DirectTokens(arguments.link)
    if direct is not None:
        cleanup.callback(direct.close)
    deliveries = Deliveries(direct)
    engine = EmulatedEngine(
        profile=profile,
        policy=arguments.policy,
        observer=deliveries,
        step_records=arguments.link is not None,
        block_tokens=BLOCK_TOKENS,
        keep_step_log=False,
    )
    listener = listen(arguments.host, arguments.port)
    cleanup.callback(listener.close)
    link = None
    if arguments.link is not None:
        link = EngineEnd(arguments.link)
        cleanup.callback(link.close)
    return Parts(
        listener=listener,
        parent=parent,
        engine=engine,
        driver=WallClockDriver(engine, deliveries),
        link=link,
        key=key,
        model=arguments.served_model or profile.model.name,
        noise=Noise(ratio=arguments.measure_noise, seed=arguments.measure_seed),
    )


class Process:
    """The running parts, and how they stop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._driver = parts.driver
        self._version = metadata.version("pdmuxd")
        self._stop_after: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        """Seconds that requests in flight still have, once the process is to stop."""
        self._hurry = asyncio.Event()
        app = build_app(parts.driver, model=parts.model, version=self._version, key=parts.key)
        self._server = HttpServer(app, close_s=_CLOSE_S, on_started=self._announce)

    async def run(self) -> None:
        """Serve until told to stop. Raises: EngineInvariantError if the emulator is defective."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_signal)
        # A terminal sends its interrupt to parent and child alike; a parent that drains must not lose
        # its engine to it.
        watched = self._parts.parent.watched
        loop.add_signal_handler(signal.SIGINT, (lambda: None) if watched else self._on_signal)
        reporter = self._introduce()
        serving = asyncio.create_task(self._server.serve([self._parts.listener]))
        helpers = [asyncio.create_task(self._driver.run()), asyncio.create_task(self._watch_parent())]
        if reporter is not None and self._parts.link is not None:
            helpers.append(asyncio.create_task(reporter.run()))
            helpers.append(asyncio.create_task(self._obey(self._parts.link)))
        try:
            ends: list[asyncio.Future[Any]] = [self._stop_after, serving, *helpers]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for helper in helpers:
                if helper.done():
                    helper.result()
            await self._finish(serving)
        finally:
            for task in (serving, *helpers):
                task.cancel()
            await asyncio.gather(serving, *helpers, return_exceptions=True)
        if reporter is not None and self._parts.link is not None:
            reporter.send_steps()
            reporter.send_stats()
            await self._parts.link.drain(_FLUSH_S)

    def _introduce(self) -> Reporter | None:
        link = self._parts.link
        if link is None:
            return None
        reporter = Reporter(self._parts.engine, link, self._driver.catch_up)
        self._driver.on_end(reporter.send_request)
        link.send(hello(self._parts.engine, model=self._parts.model, version=self._version))
        return reporter

    async def _finish(self, serving: asyncio.Task[None]) -> None:
        """Let requests in flight end within the time they have, abort the rest, close the server."""
        drain_s = self._stop_after.result() if self._stop_after.done() else 0.0
        draining = asyncio.create_task(self._driver.drain(drain_s))
        hurrying = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([draining, hurrying], return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurrying.cancel()
        self._driver.abort_all(refuse("the engine is stopping", status=503, code="engine_stopping"))
        self._server.should_exit = True
        await serving

    def _on_signal(self) -> None:
        """A request to stop. If the parent is dead, requests in flight keep the time that they have."""
        if not self._stop_after.done():
            self._stop(ORPHAN_DRAIN_S if self._parts.parent.has_died else 0.0)
        elif not self._parts.parent.has_died:
            self._hurry.set()

    def _stop(self, drain_s: float) -> None:
        if not self._stop_after.done():
            self._driver.draining = True
            self._stop_after.set_result(drain_s)

    async def _watch_parent(self) -> None:
        await self._parts.parent.death()
        _log.warning("the parent process died; finishing within %g s", ORPHAN_DRAIN_S)
        self._stop(ORPHAN_DRAIN_S)
        await asyncio.Event().wait()

    async def _obey(self, link: EngineEnd) -> None:
        """Carry out what the daemon sends."""
        while True:
            await link.wait()
            try:
                message: ToEngine | None = link.receive()
            except LinkError as error:
                _log.warning("link: %s", error)
                continue
            match message:
                case EngineSettings():
                    link.send(self._driver.apply(message))
                case Measure():
                    link.send(self._measure(message))

    def _measure(self, asked: Measure) -> Measured:
        if not self._driver.engine.is_idle:
            return Measured(point_id=asked.point_id, error="requests are in progress; measure an idle engine")
        return measure(self._parts.engine.profile, self._parts.engine.table, asked, self._parts.noise)

    def _announce(self) -> None:
        sys.stdout.write(f"emulated engine listening on {address(self._parts.listener)}\n")
        sys.stdout.flush()
