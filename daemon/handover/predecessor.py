"""The old daemon's side: starts a new daemon and gives it its place, or keeps it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import structlog

from pdmuxd.daemon.handover.channel import Channel, Done, Message, Offer, Ready, Refused, Serving, Stop, Yours
from pdmuxd.daemon.handover.inheritance import VARIABLE
from pdmuxd.daemon.supervisor.child import describe_exit
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.engine.core.errors import ConflictError, EngineError
from pdmuxd.engine.link.messages import LINK_PROTOCOL
from pdmuxd.engine.link.owner import name_owner, owner_path

_START_TIMEOUT_S = 120.0
"""A daemon imports and opens its database in 2 s on an idle machine."""
_SERVE_TIMEOUT_S = 30.0
_LAST_WORDS_S = 2.0
_MessageT = TypeVar("_MessageT", Ready, Serving)

log = structlog.get_logger("pdmuxd.handover")


class Predecessor:
    """Gives the place of this daemon away, once; when `given` is set it has only to end what it has."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        descriptors: Mapping[str, int],
        told_to_stop: Callable[[], None],
        on_given: Callable[[int], None],
    ) -> None:
        self.given = asyncio.Event()
        self.successor: subprocess.Popen[bytes] | None = None
        self._supervisor = supervisor
        self._descriptors = descriptors
        self._told_to_stop = told_to_stop
        self._on_given = on_given
        self._work: asyncio.Task[str] | None = None
        self._listening: asyncio.Task[None] | None = None

    async def give_place(self, *, migrate: bool) -> str:
        """Start this program anew and give it everything; the version of the new daemon.

        Raises: ConflictError saying why nothing was changed.
        """
        if self._work is not None and not self._work.done():
            raise ConflictError("another daemon is being started already")
        if self.given.is_set():
            raise ConflictError("another daemon has taken the place of this one")
        if (why := self._supervisor.not_ready_because()) is not None and not self._supervisor.is_held:
            raise ConflictError(f"{why}; a daemon can be replaced while its engine serves")
        self._work = asyncio.create_task(self._give_place(migrate=migrate), name="handover")
        # The one who asked may leave; the handover goes on.
        return await asyncio.shield(self._work)

    async def close(self) -> None:
        """Call off a handover that is under way; this daemon is about to stop."""
        if self._work is not None and not self._work.done():
            self._work.cancel()
            await asyncio.wait((self._work,))
        if self._listening is not None:
            self._listening.cancel()

    def forward_stop(self) -> None:
        if self.successor is not None:
            with contextlib.suppress(ProcessLookupError):
                self.successor.send_signal(signal.SIGTERM)

    async def _give_place(self, *, migrate: bool) -> str:
        ours, theirs = socket.socketpair()
        try:
            process = _start({**self._descriptors, "channel": theirs.fileno()})
        except OSError as error:
            ours.close()
            raise ConflictError(f"the new daemon cannot be started: {error}; this one serves on") from error
        finally:
            theirs.close()
        log.info("a new daemon is started", pid=process.pid)
        channel = await Channel.of(ours)
        try:
            version = await self._dialogue(channel, process, migrate=migrate)
        except BaseException as error:
            self._supervisor.take_back()
            channel.close()
            await asyncio.to_thread(_end, process)
            if isinstance(error, EngineError | ConflictError):
                how = describe_exit(process.returncode)
                log.error(
                    "the new daemon did not take over; this one serves on", reason=str(error), ended=how
                )
                raise ConflictError(
                    f"{error}; the new daemon {how}, the log has its last words; this one serves on"
                ) from error
            raise
        self.successor = process
        self.given.set()
        self._listening = asyncio.create_task(self._listen(channel), name="handover-listen")
        return version

    async def _dialogue(self, channel: Channel, process: subprocess.Popen[bytes], *, migrate: bool) -> str:
        await channel.send(
            Offer(version=metadata.version("pdmuxd"), link_protocol=LINK_PROTOCOL, migrate=migrate)
        )
        ready = await self._expect(channel, Ready, _START_TIMEOUT_S)
        engine = await self._supervisor.give_away()
        await channel.send(Yours(engine=engine))
        await self._expect(channel, Serving, _SERVE_TIMEOUT_S)
        # The engine ends with its owner, and this process is about to end.
        name_owner(owner_path(engine.link), process.pid)
        self._supervisor.confirm_given()
        self._on_given(process.pid)
        await channel.send(Done())
        log.info("the new daemon has taken over", pid=process.pid, version=ready.version)
        return ready.version

    async def _expect(self, channel: Channel, kind: type[_MessageT], timeout_s: float) -> _MessageT:
        try:
            async with asyncio.timeout(timeout_s):
                message: Message = await channel.receive()
        except TimeoutError:
            raise EngineError(f"the new daemon did not answer within {timeout_s:g} s") from None
        if isinstance(message, Refused):
            raise EngineError(f"the new daemon refuses: {message.reason}")
        if not isinstance(message, kind):
            raise EngineError(f"the new daemon says {message!r}")
        return message

    async def _listen(self, channel: Channel) -> None:
        """The new daemon may be told to stop while this one still has connections."""
        with contextlib.suppress(EngineError):
            while not isinstance(await channel.receive(), Stop):
                pass
            self._told_to_stop()
            # The new daemon waits for the end of this process, which closes the channel.
            await asyncio.Event().wait()


def command_of_this_program() -> list[str]:
    """How this process was started: a script by its path, so that a link may lead elsewhere by now."""
    program = Path(sys.argv[0])
    if os.access(program, os.X_OK) and program.suffix != ".py":
        return [str(program.absolute()), *sys.argv[1:]]
    return [sys.executable, *sys.orig_argv[1:]]


def _start(descriptors: Mapping[str, int]) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    environment[VARIABLE] = ",".join(f"{name}={number}" for name, number in descriptors.items())
    # It names this process; without it the service manager's watchdog is for whoever is the main one.
    environment.pop("WATCHDOG_PID", None)
    return subprocess.Popen(  # noqa: S603 - this very program
        command_of_this_program(),
        env=environment,
        pass_fds=tuple(descriptors.values()),
        # A terminal's Ctrl-C is for this process, which passes it on.
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_WORDS_S)
        return
    process.kill()
    process.wait()


def become_waiter(successor: subprocess.Popen[bytes]) -> None:
    """End as a small process that waits for `successor` and ends as it does; does not return."""
    from pdmuxd.daemon.handover import waiter

    signal.pthread_sigmask(signal.SIG_BLOCK, waiter.SIGNALS)
    os.execv(sys.executable, [sys.executable, "-I", "-S", waiter.__file__, str(successor.pid)])  # noqa: S606
