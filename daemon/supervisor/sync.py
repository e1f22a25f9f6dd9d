"""Brings the settings that are wanted into force in the engine, and knows which are."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec
import structlog

from pdmuxd.engine.core.errors import LinkError
from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import Ack, EngineSettings, Hello

ACK_TIMEOUT_S = 0.3
"""Settings are sent again after this: three attempts fit into the second within which an edit is in force."""

log = structlog.get_logger("pdmuxd.supervisor")


class SettingsLink(Protocol):
    """The part of the link that is needed here."""

    async def send(self, msg: EngineSettings) -> None:
        """Raises: LinkError if no engine is connected."""


class SettingsSync:
    """Holds the newest settings; `run` sends them to one engine until it acknowledges them."""

    def __init__(self, wanted: EngineSettings, *, ack_timeout_s: float = ACK_TIMEOUT_S) -> None:
        self._wanted = wanted
        self._ack_timeout_s = ack_timeout_s
        self._hello: Hello | None = None
        self._acked: int | None = None
        self._refused: Ack | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def wanted(self) -> EngineSettings:
        """What the engine should have."""
        return self._wanted

    @property
    def wanted_version(self) -> int:
        """The version that the engine should have."""
        return self._wanted.version

    @property
    def acked_version(self) -> int:
        """The version in force in the engine; 0 if it has acknowledged none."""
        return self._acked or 0

    @property
    def in_force(self) -> bool:
        """Whether the engine works with exactly what is wanted."""
        return self._acked == self._wanted.version

    @property
    def refusal(self) -> str | None:
        """Why the engine refused the wanted settings; None if it did not."""
        if self._refused is None or self._refused.version != self._wanted.version:
            return None
        return f"the engine refused settings {self._refused.version}: {self._refused.error}"

    @property
    def profile_difference(self) -> str | None:
        """Why the wanted predictors are not sent to this engine; None if they are, or none are wanted."""
        if self._hello is None or self._wanted.predictors is None:
            return None
        return difference(self._wanted.predictors, self._hello)

    def meet(self, hello: Hello) -> None:
        """The engine introduced itself: predictors of another engine are not for it."""
        self._hello = hello
        if self.profile_difference is not None:
            log.warning("the active profile does not fit this engine", reason=self.profile_difference)

    def want(self, settings: EngineSettings) -> None:
        """Bring `settings` into force, unless they are older than the newest: edits race between threads."""
        if settings.version > self._wanted.version:
            self._wanted = settings
            self._on_change()

    def use_policy(self, policy: str) -> None:
        """The next engine has `policy`; the one that runs, if any, keeps its own."""
        self._wanted = msgspec.structs.replace(self._wanted, policy=policy)

    def on_ack(self, ack: Ack) -> None:
        """The engine answered."""
        if ack.error is not None:
            self._refused = ack
            log.error("engine refused settings", version=ack.version, reason=ack.error)
        elif self._acked is None or ack.version > self._acked:
            self._acked = ack.version
        self._on_change()

    def forget_engine(self) -> None:
        """The engine is gone; the next one has acknowledged nothing."""
        self._hello = None
        self._acked = None
        self._refused = None
        self._on_change()

    async def run(self, link: SettingsLink) -> None:
        """Keep the engine at the other end of `link` up to date, until cancelled."""
        while True:
            self._changed.clear()
            if self._settled.is_set():
                await self._changed.wait()
                continue
            version = self._wanted.version
            try:
                await link.send(self._fitting())
                async with asyncio.timeout(self._ack_timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                log.warning("engine has not acknowledged settings, sending again", version=version)
            except LinkError as error:
                log.warning("settings not sent", version=version, reason=str(error))
                await asyncio.sleep(self._ack_timeout_s)

    async def wait_settled(self) -> None:
        """Wait until the engine has the wanted settings, or has refused them. Only while `run` runs."""
        await self._settled.wait()

    def _fitting(self) -> EngineSettings:
        """What is wanted, without predictors of another engine."""
        if self.profile_difference is None:
            return self._wanted
        return msgspec.structs.replace(self._wanted, predictors=None)

    def _on_change(self) -> None:
        if self.in_force or self.refusal is not None:
            self._settled.set()
        else:
            self._settled.clear()
        self._changed.set()
