"""The composition root: everything that runs is started here, in order, and stopped in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog
import typer
import uvloop

from pdmuxd.controlplane.database.audit import log_entry
from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.events.buffer import EventBuffer
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.building.node import build_node, engine_plan
from pdmuxd.daemon.building.parts import build
from pdmuxd.daemon.duties.kept_history import start_keeping_history
from pdmuxd.daemon.duties.token_use import catch_up, load_use
from pdmuxd.daemon.events import connect_service_manager, follow_directory
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.handover.channel import Channel
from pdmuxd.daemon.handover.inheritance import Inheritance, inherited
from pdmuxd.daemon.handover.predecessor import Predecessor, become_waiter
from pdmuxd.daemon.handover.successor import Successor
from pdmuxd.daemon.httpd.cors import with_cors
from pdmuxd.daemon.httpd.listeners import Listeners
from pdmuxd.daemon.process import lock
from pdmuxd.daemon.process.background import first_to_end, in_background
from pdmuxd.daemon.process.giving_way import giving_way
from pdmuxd.daemon.process.logging import hide_secret
from pdmuxd.daemon.process.notify import Notifier
from pdmuxd.daemon.process.signals import StopRequests, on_hangup, stop_requests
from pdmuxd.daemon.roster import duties as duties_of
from pdmuxd.daemon.serving import first_run as first
from pdmuxd.daemon.serving.lifecycle import Lifecycle
from pdmuxd.daemon.serving.servers import Server, adopt, bind, serving, url_of
from pdmuxd.daemon.settings import LoadedSettings, Settings
from pdmuxd.daemon.settings.places import REPORTS, make_private
from pdmuxd.daemon.supervisor.choice import EngineChoice, choose_engine
from pdmuxd.daemon.supervisor.orphan import remove_stale_sockets
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.engine.core.errors import EngineError, PdmuxdError, SettingsError

_STOP_MARGIN_S = 15.0
"""How long stopping may take after the drain limit: last messages, the end of the engine, open connections.
"""
_LOOK_S = 0.1
_UNREAD_WHILE_DRAINING_S = 2.0
"""A client that does not read its answer must not hold up the end of the daemon."""

Reread = Callable[[], LoadedSettings]

log = structlog.get_logger("pdmuxd.daemon")


def serve(
    loaded: LoadedSettings, *, first_run: bool = False, reread: Callable[[], LoadedSettings] | None = None
) -> int:
    """Run the daemon until it is told to stop; returns its exit code. `reread` reads the settings again.

    0 after a drain, 1 if a second signal cut it short.
    Raises: PdmuxdError if it cannot start; nothing is left running then.
    """
    given = inherited()
    ended = uvloop.run(_run(loaded, given, reread, first_run=first_run))
    if ended.successor is not None and not _has_service_manager():
        become_waiter(ended.successor)
    return ended.code


def _has_service_manager() -> bool:
    """Whether somebody else looks after the new process."""
    return "NOTIFY_SOCKET" in os.environ


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    code: int
    successor: subprocess.Popen[bytes] | None


async def _run(
    loaded: LoadedSettings, given: Inheritance, reread: Reread | None, *, first_run: bool
) -> _Ended:
    successor = None if given.channel is None else Successor(await Channel.of(given.channel))
    try:
        return await _live(loaded, given, successor, reread, first_run=first_run and successor is None)
    except PdmuxdError as error:
        if successor is not None:
            await successor.refuse(str(error))
        raise


async def _live(
    loaded: LoadedSettings,
    given: Inheritance,
    successor: Successor | None,
    reread: Reread | None,
    *,
    first_run: bool,
) -> _Ended:
    with stop_requests() as requests:
        async with AsyncExitStack() as stack:
            stack.enter_context(giving_way())
            engine = choose_engine(loaded.settings.engine, loaded.settings.resolved_state_dir)
            daemon = await _start(
                stack, loaded, engine, given, successor, requests, reread=reread, first_run=first_run
            )
            stack.enter_context(on_hangup(daemon.lifecycle.reload_by_signal, has_terminal=os.isatty(0)))
            in_background(stack, _announce(daemon, to_people=first_run), name="announce")
            predecessor = daemon.predecessor
            await first_to_end(requests.stop.wait(), daemon.supervisor.ended(), predecessor.given.wait())
            if predecessor.given.is_set():
                await _retire(daemon, requests)
                return _Ended(code=0, successor=predecessor.successor)
            if daemon.supervisor.fatal is not None:
                raise SettingsError(daemon.supervisor.fatal)
            if not requests.stop.is_set():
                raise EngineError("the supervision of the engine ended by itself; the log says why")
            await predecessor.close()
            drain_timeout_s = daemon.lifecycle.settings.drain_timeout_s
            await _drain(daemon, requests, drain_timeout_s)
            if successor is not None:
                await successor.end_predecessor(drain_timeout_s + _STOP_MARGIN_S)
        return _Ended(code=1 if requests.at_once.is_set() else 0, successor=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Daemon:
    gateway: Gateway
    supervisor: Supervisor
    listeners: Listeners
    servers: _Servers
    duties: AsyncExitStack
    """Work that only one daemon may do at a time: it ends when another daemon has taken over."""
    predecessor: Predecessor
    notifier: Notifier
    lifecycle: Lifecycle
    events: EventBuffer
    welcome: first.Welcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Servers:
    data: Server
    admin: Server


async def _start(
    stack: AsyncExitStack,
    loaded: LoadedSettings,
    engine: EngineChoice,
    given: Inheritance,
    successor: Successor | None,
    requests: StopRequests,
    *,
    reread: Reread | None,
    first_run: bool,
) -> _Daemon:
    """Start everything; `stack` stops it in reverse. The engine is started last and not waited for.

    A `successor` takes over a running engine instead, and accepts connections only when it has.
    """
    settings = loaded.settings
    offer = None if successor is None else await successor.accept_offer()
    # Addresses first: a port in use must stop the start before there is anything to clean up.
    data = _listen(stack, given, settings.data.host, settings.data.port, section="data")
    admin = _listen(stack, given, settings.admin.host, settings.admin.port, section="admin")
    lock_fd = _claim_places(stack, loaded, given, data_url=url_of(data), admin_url=url_of(admin))
    told = {"mode": engine.mode, "why": engine.why}
    log.info("engine chosen", engine=engine.described, **{k: v for k, v in told.items() if v})
    control_plane = _open_store(stack, settings, migrate=first_run or (offer is not None and offer.migrate))
    api_key = first.ensure_tenant(control_plane, loaded) if first_run else None
    admin_token = first.ensure_admin_token(settings.resolved_token_file)
    hide_secret(admin_token)

    notifier = stack.enter_context(Notifier.from_environment(os.environ))
    node = build_node(settings, engine_plan(settings, engine), control_plane)
    telemetry, supervisor = node.telemetry, node.supervisor
    predecessor = Predecessor(
        supervisor,
        descriptors={"data": data.fileno(), "admin": admin.fileno(), "lock": lock_fd},
        told_to_stop=requests.stop.set,
        on_given=notifier.main_process,
    )
    parts = build(
        loaded,
        control_plane,
        node,
        admin_token=admin_token,
        reread=reread,
        give_place=predecessor.give_place,
    )
    gateway, listeners, lifecycle = parts.data.gateway, parts.data.listeners, parts.admin.lifecycle
    if successor is None and not control_plane.store.is_shared:
        catch_up(control_plane, node.history.history.ledger)
    load_use(node.limiter, control_plane)
    connect_service_manager(node.bus, notifier.status)

    # Its last write must come after the engine's end, when nothing is counted any more.
    keeping = start_keeping_history(stack, node.history)

    # After the last requests.
    parts.data.tracing.close_with(stack)
    stack.push_async_callback(gateway.close)
    stack.push_async_callback(parts.admin.actions.close)
    stack.push_async_callback(parts.learning.replays.close)
    follow_directory(stack, control_plane, node.bus)
    if successor is not None:
        await _take_engine(supervisor, successor, gateway)
    admin_server = await stack.enter_async_context(serving(parts.admin.app, admin, listeners.admin))
    # Before the server stops, which would wait for streams that never end by themselves.
    stack.callback(telemetry.events.close)
    data_server = await stack.enter_async_context(
        serving(with_cors(gateway, settings.data.cors_origins), data, listeners.data)
    )
    stack.push_async_callback(predecessor.close)
    stack.push_async_callback(_stop_engine, supervisor, requests)
    if successor is not None:
        await successor.take_place()
        lock.sign(lock_fd, admin_url=url_of(admin), data_url=url_of(data))
    else:
        # systemd would otherwise stop a daemon whose engine takes minutes to load a model.
        notifier.extend_timeout(engine.start_timeout_s + _STOP_MARGIN_S)
        await supervisor.start(in_flight=gateway.in_flight)
    duties = await stack.enter_async_context(AsyncExitStack())
    in_background(duties, _feed_watchdog(notifier, supervisor), name="watchdog")
    own = duties_of(parts, control_plane, settings)
    for duty in own:
        duty.start(duties if duty.is_alone else stack)
    lifecycle.duties = (*keeping, *own)
    parts.data.garbage.hold()
    stack.callback(parts.data.garbage.release)
    welcome = first.welcome(loaded, engine, data_url=url_of(data), admin_url=url_of(admin), api_key=api_key)
    return _Daemon(
        gateway=gateway,
        supervisor=supervisor,
        listeners=listeners,
        servers=_Servers(data=data_server, admin=admin_server),
        duties=duties,
        predecessor=predecessor,
        notifier=notifier,
        lifecycle=lifecycle,
        events=telemetry.events,
        welcome=welcome,
    )


async def _take_engine(supervisor: Supervisor, successor: Successor, gateway: Gateway) -> None:
    """Take the engine over from the daemon before; if that fails it goes on there. Raises: EngineError."""
    await supervisor.start(await successor.take_engine(), in_flight=gateway.in_flight)
    await first_to_end(supervisor.wait_serving(), supervisor.ended())
    if supervisor.fatal is not None:
        raise EngineError(supervisor.fatal)


async def _announce(daemon: _Daemon, *, to_people: bool) -> None:
    await daemon.supervisor.wait_serving()
    daemon.notifier.ready(f"Serving {daemon.welcome.model}")
    log.info("ready", data=daemon.welcome.data_url, admin=daemon.welcome.admin_url)
    if to_people:
        typer.echo(daemon.welcome.text())


async def _drain(daemon: _Daemon, requests: StopRequests, timeout_s: float) -> None:
    """Let requests in flight finish within `timeout_s`, unless a second signal asks to stop at once."""
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


async def _retire(daemon: _Daemon, requests: StopRequests) -> None:
    """Another daemon has taken the place: let what is in flight here finish."""
    settings = daemon.lifecycle.settings
    await daemon.duties.aclose()
    daemon.events.close()
    await daemon.servers.data.retire(close_idle=False)
    await daemon.servers.admin.retire(close_idle=True)

    async def until_empty() -> None:
        while daemon.listeners.data.count or daemon.listeners.admin.count:  # noqa: ASYNC110 - once in its life
            await asyncio.sleep(_LOOK_S)

    async def until_late() -> None:
        await asyncio.sleep(settings.upgrade_drain_timeout_s)

    await first_to_end(until_empty(), until_late(), requests.stop.wait())
    if requests.stop.is_set():
        if not _has_service_manager():
            daemon.predecessor.forward_stop()
        daemon.listeners.data.hurry(_UNREAD_WHILE_DRAINING_S)
    is_late = bool(daemon.gateway.admission.in_flight) and not requests.stop.is_set()
    ended = await daemon.gateway.drain(0.0 if is_late else settings.drain_timeout_s)
    log.info("the daemon before has ended what it had", ended_early=ended)


async def _stop_engine(supervisor: Supervisor, requests: StopRequests) -> None:
    if not requests.at_once.is_set():
        await first_to_end(supervisor.stop(), requests.at_once.wait())
    await supervisor.stop(at_once=True)


async def _feed_watchdog(notifier: Notifier, supervisor: Supervisor) -> None:
    """Runs in the loop that serves, so that a loop that is stuck starves the watchdog."""
    if notifier.watchdog_interval_s is None:
        return
    while supervisor.is_alive():
        notifier.watchdog()
        await asyncio.sleep(notifier.watchdog_interval_s)


def _listen(
    stack: AsyncExitStack, given: Inheritance, host: str, port: int, *, section: str
) -> socket.socket:
    listener = given.sockets.get(section)
    if listener is not None:
        stack.callback(listener.close)
        return adopt(listener, host, port, section=section, giver=given.giver)
    return stack.enter_context(contextlib.closing(bind(host, port, section=section)))


def _claim_places(
    stack: AsyncExitStack, loaded: LoadedSettings, given: Inheritance, *, data_url: str, admin_url: str
) -> int:
    """Make the directories private and hold the lock; its descriptor."""
    for note in loaded.notes:
        log.warning(note)
    make_private(loaded.settings.resolved_state_dir)
    make_private(loaded.settings.resolved_state_dir / REPORTS)
    make_private(loaded.settings.resolved_runtime_dir)
    state_dir = loaded.settings.resolved_state_dir
    if given.lock is not None:
        return stack.enter_context(lock.inherited(given.lock))
    descriptor = stack.enter_context(lock.exclusive(state_dir, admin_url=admin_url, data_url=data_url))
    if removed := remove_stale_sockets(loaded.settings.resolved_runtime_dir):
        log.info("sockets of engines that are gone were removed", sockets=removed)
    return descriptor


def _open_store(stack: AsyncExitStack, settings: Settings, *, migrate: bool) -> ControlPlane:
    if migrate:
        first.migrate(settings.resolved_database_url)
    engine = open_database(settings.resolved_database_url)
    stack.callback(engine.dispose)
    return ControlPlane(engine, recorded=log_entry)
