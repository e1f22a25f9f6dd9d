"""The life of one engine process, from its start to the reason of its end."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec
import structlog

from pdmuxd.controlplane.node.scheduling import write_pairs
from pdmuxd.daemon.process.background import first_to_end
from pdmuxd.daemon.supervisor import child, orphan
from pdmuxd.daemon.supervisor.address import EngineAddress, EngineRanges
from pdmuxd.daemon.supervisor.diagnosis import diagnose, not_understood, parts_of_start, stage
from pdmuxd.daemon.supervisor.enginelog import EngineLog
from pdmuxd.daemon.supervisor.events import EngineServing, EngineUnresponsive, Publish
from pdmuxd.daemon.supervisor.evidence import keep_evidence
from pdmuxd.daemon.supervisor.handle import EngineHandle
from pdmuxd.daemon.supervisor.plan import KEY_VARIABLE, Command, EnginePlan
from pdmuxd.daemon.supervisor.silence import TICK_S, Silence, Standstill
from pdmuxd.daemon.supervisor.split_numbers import MessageT, SplitNumbers
from pdmuxd.daemon.supervisor.sync import SettingsSync
from pdmuxd.daemon.tokens.counts import TokenCounts
from pdmuxd.daemon.tokens.receiver import TokenReceiver, open_receiver
from pdmuxd.engine.core.errors import EngineError, EngineLostError, EngineSetupError, LinkError
from pdmuxd.engine.link import procfs
from pdmuxd.engine.link.messages import Ack, EngineStats, Hello, IterationRecord, RequestRecord
from pdmuxd.engine.link.socket import DaemonEnd
from pdmuxd.engine.link.token_frames import frames_path

_HEALTH_PERIOD_S = 0.05
_HEALTH_TIMEOUT_S = 2.0
_HOUSEKEEPING_PERIOD_S = 1.0
_PROGRESS_PERIOD_S = 30.0
_DYING_WORDS_BYTES = 8192
_KEPT_MESSAGES = 40
"""For the evidence of one that hangs or dies: steps and heartbeats."""

log = structlog.get_logger("pdmuxd.supervisor")


class _GivenAwayError(Exception):
    """Leaves the tasks of a run whose engine goes on under another daemon."""


class EngineRun:
    """One engine, started here or taken over from another daemon (`adopted`).

    `run` ends by raising, or by being cancelled, and the process is gone then; or after `give_away`, and it
    runs on.
    """

    def __init__(
        self,
        plan: EnginePlan,
        *,
        sync: SettingsSync,
        engine_log: EngineLog,
        publish: Publish,
        on_serving: Callable[[], None],
        adopted: EngineHandle | None = None,
        process: child.EngineProcess | None = None,
        token_counts: TokenCounts | None = None,
        in_flight: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.process = process
        """Given with `adopted` if it is looked after already."""
        self.handle: EngineHandle | None = None
        """How another daemon would find it."""
        self.pid: int | None = None
        self.hello: Hello | None = None
        self.stats: EngineStats | None = None
        self._splits: SplitNumbers | None = None
        self.stop_grace_s = plan.stop_grace_s
        self.stage: str | None = None
        """What a starting engine is doing, as far as its log says."""
        self._plan = plan
        self._sync = sync
        self._log = engine_log
        self._publish = publish
        self._on_serving = on_serving
        self._greeted = asyncio.Event()
        self._silence = Silence(time.monotonic)
        self._standstill = Standstill()
        self._is_unresponsive = False
        self._said: deque[object] = deque(maxlen=_KEPT_MESSAGES)
        self._serving = False
        self._told_to_end = asyncio.Event()
        self._told_to_give_away = asyncio.Event()
        self._adopted = adopted
        self._token_counts = token_counts
        self._in_flight = in_flight
        """What it works on, a line for each request: for the evidence."""
        self._tokens: TokenReceiver | None = None
        self._is_kept = False
        """Whether the process goes on when `run` ends."""

    def end(self) -> None:
        """End this engine in its own time; `run` then raises."""
        self._told_to_end.set()

    def give_away(self) -> None:
        """Leave the engine as it is, for another daemon; `run` then returns."""
        self._told_to_give_away.set()

    async def run(self) -> None:
        """Start the engine and stay with it. Raises: EngineError saying why it ended."""
        handle = self._adopted or EngineHandle.fresh(self._plan.runtime_dir)
        link = DaemonEnd(handle.link)
        buffer_bytes = self._plan.token_buffer_bytes
        if buffer_bytes is not None:
            self._tokens = open_receiver(
                frames_path(handle.link), max_unsent_bytes=buffer_bytes, counts=self._token_counts
            )
        try:
            self.process = process = await self._begin(handle)
            self.pid = process.pid
            self.handle = handle = msgspec.structs.replace(
                handle,
                pid=process.pid,
                start_ticks=procfs.start_ticks(process.pid) or 0,
                log_start_bytes=self._log.start_bytes,
            )
            await self._stay(process, link, handle)
        finally:
            link.close()
            if self._tokens is not None:
                self._tokens.close()
            if not self._is_kept:
                handle.remove_files()

    async def _begin(self, handle: EngineHandle) -> child.EngineProcess:
        if self._adopted is None:
            return self._start(handle)
        self._log.go_on(handle.log_start_bytes)
        # Until it serves here it may yet be taken back.
        self._is_kept = True
        return self.process or child.adopt(handle.pid, start_ticks=handle.start_ticks)

    async def _stay(self, process: child.EngineProcess, link: DaemonEnd, handle: EngineHandle) -> None:
        try:
            if self._adopted is None:
                await self._remember(process.pid, Path(handle.socket))
            await first_to_end(
                self._until_exit(process),
                self._until_told(),
                self._until_given_away(),
                self._read(link),
                self._update(link),
                self._serve(handle),
                self._tell_progress(),
            )
        except _GivenAwayError:
            self._is_kept = True
        finally:
            if not self._is_kept:
                await self._end(process)

    async def _end(self, process: child.EngineProcess) -> None:
        self._sync.forget_engine()
        try:
            if await child.end(process, grace_s=self.stop_grace_s) and self.stop_grace_s:
                log.warning("engine did not end in time and was killed", grace_s=self.stop_grace_s)
        finally:
            orphan.forget(self._plan.record_path)

    @property
    def silent_s(self) -> float | None:
        """How long a serving engine has said nothing, if that is too long to trust it with requests."""
        return self._silence.silent_s if self._is_unresponsive else None

    async def _remember(self, pid: int, socket_path: Path) -> None:
        try:
            await orphan.remember(self._plan.record_path, pid, socket_path)
        except OSError as error:
            # Worth less than serving: only a daemon that is killed would need it.
            log.warning("engine not written down", path=str(self._plan.record_path), reason=error.strerror)

    def _start(self, handle: EngineHandle) -> child.EngineProcess:
        command = self._command()(handle.port, handle.link, os.getpid())
        environment = child.engine_environment({KEY_VARIABLE: handle.api_key})
        try:
            descriptor = self._log.open()
        except OSError as error:
            log.warning("engine starts without a log", path=str(self._log.path), reason=error.strerror)
            descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            return child.start(command, environment=environment, log=descriptor)
        except OSError as error:
            raise EngineError(f"the engine cannot be started: {command[0]}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def _command(self) -> Command:
        """The command with the policy that is wanted now: on a real GPU its splits are made at the start
        only."""
        wanted, make = self._sync.starting(), self._plan.command_for
        if make is None:
            return self._plan.command
        pairs = wanted.partitions
        return make(wanted.policy, None if pairs is None else write_pairs(pairs))

    async def _until_exit(self, process: child.EngineProcess) -> None:
        code = await process.wait()
        how = child.describe_exit(code)
        if self._serving:
            # What it logged long ago, of requests that failed alone, is not what it died of.
            why = diagnose(self._log.text(_DYING_WORDS_BYTES)) if code != 0 else None
            reason = f"the engine {how}" + (f": {why.text}" if why is not None else "")
            await self._keep_evidence("death", reason)
            raise EngineLostError(reason)
        why = diagnose(self._log.text()) if code != 0 else None
        if why is None:
            raise EngineError(f"the engine {how} while starting; its last words: {self._log.last_words()}")
        error = EngineSetupError if why.is_permanent else EngineError
        raise error(f"{why.text}; the engine {how} while starting, its log is {self._log.path}")

    async def _until_given_away(self) -> None:
        await self._told_to_give_away.wait()
        raise _GivenAwayError

    async def _until_told(self) -> None:
        await self._told_to_end.wait()
        raise EngineError("the engine was ended to be restarted")

    async def _read(self, link: DaemonEnd) -> None:
        while True:
            try:
                message = await link.receive()
            except LinkError as error:
                if self.hello is None:
                    raise not_understood(error) from error
                log.warning("unreadable message from the engine", reason=str(error))
                continue
            self._silence.heard()
            self._said.append(message)
            match message:
                case Hello():
                    self.hello = message
                    self._splits = SplitNumbers(message.partitions, message.total_sms)
                    self._sync.meet(message)
                    self._greeted.set()
                case Ack():
                    self._sync.on_ack(message)
                case IterationRecord():
                    message = self._numbered(message)
                case EngineStats():
                    message = self.stats = self._numbered(message)
                    self._standstill.heard(message)
                case RequestRecord():
                    self._publish(message)
                    # Those that ended with one step come together, and each costs half a millisecond: tokens
                    # are read between them.
                    await asyncio.sleep(0)
                    continue
            self._publish(message)

    def _numbered(self, message: MessageT) -> MessageT:
        """Number the groups by the split that was really used."""
        if self._splits is None or self.hello is None:
            return message
        known = len(self._splits.sizes)
        message = self._splits.numbered(message)
        if len(self._splits.sizes) > known:
            self.hello = msgspec.structs.replace(self.hello, partitions=self._splits.sizes)
        return message

    async def _update(self, link: DaemonEnd) -> None:
        await self._greeted.wait()
        await self._sync.run(link)

    async def _serve(self, handle: EngineHandle) -> None:
        timeout_s = self._plan.start_timeout_s if self._adopted is None else self._plan.adopt_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._greeted.wait()
                await _healthy(handle.base_url)
                await self._sync.wait_settled()
        except TimeoutError:
            if self._adopted is not None:
                raise EngineError(
                    f"the engine did not answer its new daemon within {timeout_s:g} s"
                ) from None
            raise EngineError(
                f"the engine did not serve within {timeout_s:g} s "
                f"(engine.start_timeout_s); its last words: {self._log.last_words()}"
            ) from None
        if self._sync.refusal is not None:
            raise EngineError(self._sync.refusal)
        hello = self.hello
        address = EngineAddress(
            base_url=handle.base_url,
            api_key=handle.api_key,
            models=frozenset({hello.model}) if hello is not None else frozenset[str](),
            context_tokens=hello.context_tokens if hello is not None else None,
            partition_groups=len(hello.partitions) if hello is not None else 0,
            ranges=EngineRanges() if hello is None else EngineRanges.of(hello),
            tokens=self._tokens,
        )
        self._serving = True
        self._is_kept = False
        self._on_serving()
        log.info(
            "engine serves",
            address=address.base_url,
            models=sorted(address.models),
            partition_groups=address.partition_groups,
        )
        self._publish(EngineServing(address))
        await self._keep_watch()

    async def _tell_progress(self) -> None:
        """Say what a start that takes long is doing: a large model loads for minutes."""
        began_s = said_s = since_s = time.monotonic()
        told: str | None = None
        while not self._serving:
            await asyncio.sleep(_HOUSEKEEPING_PERIOD_S)
            doing = stage(await asyncio.to_thread(self._log.text))
            now_s = time.monotonic()
            since_s = since_s if doing == told else now_s
            self.stage = None if doing is None else f"{doing}, {now_s - since_s:.0f} s"
            if doing != told or now_s - said_s >= _PROGRESS_PERIOD_S:
                told, said_s = doing, now_s
                log.info("engine is starting", doing=doing or "starting", waited_s=round(now_s - began_s))
        parts = parts_of_start(await asyncio.to_thread(self._log.text)) if self._adopted is None else None
        if parts is not None:
            log.info("engine has started", parts=parts)
        await asyncio.get_running_loop().create_future()  # until its engine ends

    async def _keep_watch(self) -> None:
        self._silence = Silence(time.monotonic)
        bounded_s = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            self._silence.tick()
            silent_s = self._silence.silent_s
            if silent_s > self._plan.heartbeat_timeout_s:
                await self._end_hanging(f"was silent for {silent_s:.0f} s")
            if self._standstill.stuck_s > self._plan.standstill_timeout_s:
                stuck_s = self._standstill.stuck_s
                await self._end_hanging(f"made nothing of its requests for {stuck_s:.0f} s")
            self._tell_unresponsive(silent_s > self._plan.unresponsive_s)
            if time.monotonic() - bounded_s >= _HOUSEKEEPING_PERIOD_S:
                bounded_s = time.monotonic()
                await asyncio.to_thread(self._bound_log)

    def _tell_unresponsive(self, is_unresponsive: bool) -> None:
        if is_unresponsive != self._is_unresponsive:
            self._is_unresponsive = is_unresponsive
            if is_unresponsive:
                log.warning("engine is silent and gets no new requests", silent_s=self._plan.unresponsive_s)
            else:
                log.info("engine is heard again")
            self._publish(EngineUnresponsive(is_unresponsive))

    async def _end_hanging(self, what: str) -> None:
        """End an engine that hangs: its heartbeats come from the loop that serves. Raises:
        EngineLostError."""
        reason = f"the engine {what} and was stopped"
        self.stop_grace_s = 0.0  # it would not hear a request to end either
        path = await self._keep_evidence("hang", reason)
        raise EngineLostError(reason if path is None else f"{reason}; what it did is in {path}")

    async def _keep_evidence(self, kind: Literal["hang", "death"], reason: str) -> Path | None:
        if self.pid is None:
            return None
        try:
            path = await keep_evidence(
                self._plan.state_dir,
                self.pid,
                kind=kind,
                reason=reason,
                requests=self._in_flight(),
                said=self._said,
                log_tail=self._log.text(_DYING_WORDS_BYTES),
            )
        except OSError as error:
            log.warning("no evidence of the lost engine was kept", reason=error.strerror)
            return None
        log.info("evidence of the lost engine was kept", path=str(path))
        return path

    def _bound_log(self) -> None:
        try:
            if self._log.bound():
                log.info("engine log turned over", path=str(self._log.path))
        except OSError as error:
            # A full disk is no reason to end an engine that serves.
            log.warning("engine log not turned over", path=str(self._log.path), reason=error.strerror)


async def _healthy(base_url: str) -> None:
    """Wait until the engine's /health answers 200."""
    timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            try:
                async with session.get(f"{base_url}/health") as response:
                    if response.status == 200:
                        return
            except (aiohttp.ClientError, OSError):
                # Not listening yet; TimeoutError is an OSError.
                log.debug("engine not healthy yet")
            await asyncio.sleep(_HEALTH_PERIOD_S)
