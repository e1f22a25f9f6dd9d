"""The composition root: everything that runs is started here, in order, and stopped in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog
import typer
import uvloop

from pdmuxd.controlplane.audit import log_entry
from pdmuxd.controlplane.database import open_database
from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import TICK_S, Telemetry
from pdmuxd.daemon import first_run as first
from pdmuxd.daemon.background import first_to_end, in_background
from pdmuxd.daemon.builders import build
from pdmuxd.daemon.events import connect_service_manager, follow_directory
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.history import start_keeping_history
from pdmuxd.daemon.httpd.listeners import Listeners
from pdmuxd.daemon.lock import exclusive
from pdmuxd.daemon.logging import hide_secret
from pdmuxd.daemon.notify import Notifier
from pdmuxd.daemon.refinement import start_refining
from pdmuxd.daemon.servers import bind, serving, url_of
from pdmuxd.daemon.settings import LoadedSettings, Settings
from pdmuxd.daemon.settings.places import make_private
from pdmuxd.daemon.signals import StopRequests, stop_requests
from pdmuxd.daemon.supervisor.choice import EngineChoice, choose_engine
from pdmuxd.daemon.supervisor.orphan import remove_stale_sockets
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.daemon.uses import start_noting_uses
from pdmuxd.engine.core.errors import EngineError, SettingsError

_STOP_MARGIN_S = 15.0
"""What stopping may take beyond the drain limit: last words, the engine's end, open connections."""
_UNREAD_WHILE_DRAINING_S = 2.0
"""A client that does not read its answer must not hold up the end of the daemon."""

log = structlog.get_logger("pdmuxd.daemon")


def serve(loaded: LoadedSettings, *, first_run: bool = False) -> int:
    """Run the daemon until it is told to stop; returns its exit code.

    0 after a drain, 1 if a second signal cut it short.
    Raises: PdmuxdError if it cannot start; nothing is left running then.
    """
    engine = choose_engine(loaded.settings.engine, loaded.settings.resolved_state_dir)
    return uvloop.run(_run(loaded, engine, first_run=first_run))


async def _run(loaded: LoadedSettings, engine: EngineChoice, *, first_run: bool) -> int:
    with stop_requests() as requests:
        async with AsyncExitStack() as stack:
            daemon = await _start(stack, loaded, engine, requests, first_run=first_run)
            in_background(stack, _announce(daemon, to_people=first_run), name="announce")
            await first_to_end(requests.stop.wait(), daemon.supervisor.ended())
            if daemon.supervisor.fatal is not None:
                raise SettingsError(daemon.supervisor.fatal)
            if not requests.stop.is_set():
                raise EngineError("the supervision of the engine ended by itself; the log says why")
            await _drain(daemon, requests, loaded.settings.drain_timeout_s)
        return 1 if requests.at_once.is_set() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Daemon:
    gateway: Gateway
    supervisor: Supervisor
    listeners: Listeners
    notifier: Notifier
    welcome: first.Welcome


async def _start(
    stack: AsyncExitStack,
    loaded: LoadedSettings,
    engine: EngineChoice,
    requests: StopRequests,
    *,
    first_run: bool,
) -> _Daemon:
    """Start everything; `stack` stops it in reverse. The engine is started last and not waited for."""
    settings = loaded.settings
    # Addresses first: a port in use must stop the start before there is anything to clean up.
    data = _listen(stack, settings.data.host, settings.data.port, section="data")
    admin = _listen(stack, settings.admin.host, settings.admin.port, section="admin")
    _claim_places(stack, loaded, data_url=url_of(data), admin_url=url_of(admin))
    log.info("engine chosen", engine=engine.described, **({"why": engine.why} if engine.why else {}))
    control_plane = _open_store(stack, settings, first_run=first_run)
    api_key = first.ensure_tenant(control_plane, loaded) if first_run else None
    admin_token = first.ensure_admin_token(settings.resolved_token_file)
    hide_secret(admin_token)

    notifier = stack.enter_context(Notifier.from_environment(os.environ))
    parts = build(settings, engine, control_plane, admin_token=admin_token)
    gateway, supervisor, listeners = parts.gateway, parts.supervisor, parts.listeners
    connect_service_manager(parts.bus, notifier.status)

    # Its last write comes after the engine's end, when nothing is counted any more.
    start_keeping_history(stack, parts.history)
    stack.push_async_callback(gateway.close)
    stack.push_async_callback(parts.actions.close)
    await stack.enter_async_context(serving(parts.admin_app, admin, listeners.admin))
    # Before the server stops, which would wait for streams that never end by themselves.
    stack.callback(parts.telemetry.events.close)
    await stack.enter_async_context(serving(gateway, data, listeners.data))
    follow_directory(stack, control_plane, parts.bus)
    stack.push_async_callback(_stop_engine, supervisor, requests)
    # systemd would otherwise stop a daemon whose engine takes minutes to load a model.
    notifier.extend_timeout(engine.start_timeout_s + _STOP_MARGIN_S)
    await supervisor.start()
    in_background(stack, _feed_watchdog(notifier, supervisor), name="watchdog")
    in_background(stack, _tick(parts.telemetry), name="telemetry")
    start_refining(stack, parts.refinement)
    start_noting_uses(stack, parts.uses)
    # What the start made stays: without it a full garbage collection holds up no stream's tokens.
    gc.collect()
    gc.freeze()
    welcome = first.welcome(loaded, engine, data_url=url_of(data), admin_url=url_of(admin), api_key=api_key)
    return _Daemon(
        gateway=gateway, supervisor=supervisor, listeners=listeners, notifier=notifier, welcome=welcome
    )


async def _announce(daemon: _Daemon, *, to_people: bool) -> None:
    await daemon.supervisor.wait_serving()
    daemon.notifier.ready(f"Serving {daemon.welcome.model}")
    log.info("ready", data=daemon.welcome.data_url, admin=daemon.welcome.admin_url)
    if to_people:
        typer.echo(daemon.welcome.text())


async def _drain(daemon: _Daemon, requests: StopRequests, timeout_s: float) -> None:
    """Let what is in flight finish within `timeout_s`, unless a second signal says at once."""
    in_flight = daemon.gateway.admission.in_flight
    log.info("stopping", in_flight=in_flight, drain_timeout_s=timeout_s)
    daemon.notifier.stopping(f"Draining {in_flight} requests")
    daemon.notifier.extend_timeout(timeout_s + _STOP_MARGIN_S)
    daemon.supervisor.begin_drain()
    daemon.listeners.data.hurry(_UNREAD_WHILE_DRAINING_S)

    async def drain() -> None:
        ended = await daemon.gateway.drain(timeout_s)
        log.info("drained", ended_early=ended)

    await first_to_end(drain(), requests.at_once.wait())
    if requests.at_once.is_set():
        # Before the engine is killed, so that clients hear why and not that an engine was lost.
        await daemon.gateway.drain(0.0)


async def _stop_engine(supervisor: Supervisor, requests: StopRequests) -> None:
    if not requests.at_once.is_set():
        await first_to_end(supervisor.stop(), requests.at_once.wait())
    await supervisor.stop(at_once=True)


async def _tick(telemetry: Telemetry) -> None:
    while True:
        telemetry.tick()
        await asyncio.sleep(TICK_S)


async def _feed_watchdog(notifier: Notifier, supervisor: Supervisor) -> None:
    """Runs in the loop that serves, so that a loop that is stuck starves the watchdog."""
    if notifier.watchdog_interval_s is None:
        return
    while supervisor.is_alive():
        notifier.watchdog()
        await asyncio.sleep(notifier.watchdog_interval_s)


def _listen(stack: AsyncExitStack, host: str, port: int, *, section: str) -> socket.socket:
    return stack.enter_context(contextlib.closing(bind(host, port, section=section)))


def _claim_places(stack: AsyncExitStack, loaded: LoadedSettings, *, data_url: str, admin_url: str) -> None:
    for note in loaded.notes:
        log.warning(note)
    make_private(loaded.settings.resolved_state_dir)
    make_private(loaded.settings.resolved_runtime_dir)
    state_dir = loaded.settings.resolved_state_dir
    stack.enter_context(exclusive(state_dir, admin_url=admin_url, data_url=data_url))
    if removed := remove_stale_sockets(loaded.settings.resolved_runtime_dir):
        log.info("sockets of engines that are gone were removed", sockets=removed)


def _open_store(stack: AsyncExitStack, settings: Settings, *, first_run: bool) -> ControlPlane:
    if first_run:
        first.migrate(settings.resolved_database_url)
    engine = open_database(settings.resolved_database_url)
    stack.callback(engine.dispose)
    return ControlPlane(engine, recorded=log_entry)
