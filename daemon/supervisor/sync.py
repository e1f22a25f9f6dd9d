"""Brings the settings that are wanted into force in the engine, and knows which are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec
import structlog

from pdmuxd.engine.core.errors import LinkError
from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import Ack, EngineSettings, Hello

ACK_TIMEOUT_S = 0.3
"""Settings are sent again after this: three attempts fit into the second within which an edit is in force."""

QUICK_ATTEMPTS = 3
SLOW_ATTEMPT = 10
"""Times that wait, from then on."""

log = structlog.get_logger("pdmuxd.supervisor")


class SettingsLink(Protocol):
    """The part of the link that is needed here."""

    async def send(self, msg: EngineSettings) -> None:
        """Raises: LinkError if no engine is connected."""


class SettingsSync:
    """Holds the newest settings; `run` sends them to one engine until it acknowledges them."""

    def __init__(
        self,
        wanted: EngineSettings,
        *,
        plan_policy: str | None = None,
        ack_timeout_s: float = ACK_TIMEOUT_S,
    ) -> None:
        """`plan_policy`: what an engine is assumed to work by that was not started here."""
        self._floors_s: Mapping[str, float] = {}
        self._delivery_s: float | None = None
        self._wanted = wanted
        self._plan_policy = plan_policy or wanted.policy
        self._ack_timeout_s = ack_timeout_s
        self._hello: Hello | None = None
        self._taken: EngineSettings | None = None
        """Whose policy, splits and shadow the engine has taken, or was started with."""
        self._held: str | None = None
        """Why it did not take those that are wanted."""
        self._sent: EngineSettings | None = None
        self._acked: int | None = None
        self._refused: Ack | None = None
        self._sends_again = False
        """The same settings once more, since the floors or the delivery that are sent
        with them are others."""
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

    @property
    def policy_difference(self) -> str | None:
        """Why the engine goes on with the policy that it had; None if it has taken what is wanted."""
        return self._held

    def starting(self) -> EngineSettings:
        """The policy and the splits to start an engine with."""
        self._taken = msgspec.structs.replace(self._wanted, shadow=None)
        return self._wanted

    def meet(self, hello: Hello) -> None:
        """The engine introduced itself: predictors of another engine are not for it."""
        self._hello = hello
        if self._taken is None:
            self._taken = msgspec.structs.replace(
                self._wanted, policy=self._plan_policy, partitions=None, shadow=None
            )
        if self.profile_difference is not None:
            log.warning("the active profile does not fit this engine", reason=self.profile_difference)

    def want(self, settings: EngineSettings) -> None:
        """Bring `settings` into force, unless they are older than the newest: edits race between threads."""
        if settings.version > self._wanted.version:
            if scheduling_of(settings) != scheduling_of(self._wanted):
                self._held = None  # something else to try
            self._wanted = settings
            self._on_change()

    def use_policy(self, policy: str) -> None:
        """The next engine has `policy`; the one that runs, if any, keeps its own."""
        self._wanted = msgspec.structs.replace(self._wanted, policy=policy)

    def use_floors(self, floors_s: Mapping[str, float]) -> None:
        """Tell the strictest TBT targets to plan for, by tenant that is capped."""
        self._floors_s = floors_s
        self._sends_again = True
        self._on_change()

    def use_delivery(self, delivery_s: float) -> None:
        """Tell by how much gaps are longer at clients."""
        self._delivery_s = delivery_s
        self._sends_again = True
        self._on_change()

    def on_ack(self, ack: Ack) -> None:
        if ack.error is not None and self._can_go_on_without(ack):
            # The policy must not hold up targets, nor the readiness of an engine that serves.
            self._held = ack.error
            log.error("the engine keeps the policy that it had", version=ack.version, reason=ack.error)
        elif ack.error is not None:
            self._refused = ack
            log.error("engine refused settings", version=ack.version, reason=ack.error)
        elif self._acked is None or ack.version > self._acked:
            self._acked = ack.version
            if self._sent is not None and self._sent.version == ack.version:
                self._taken = self._sent
        if ack.error is None and self._sent is not None and self._sent == self._fitting():
            self._sends_again = False
        self._on_change()

    def forget_engine(self) -> None:
        """The engine is gone; the next one has acknowledged nothing."""
        self._hello = None
        self._acked = None
        self._refused = None
        self._taken = self._held = self._sent = None
        self._on_change()

    async def run(self, link: SettingsLink) -> None:
        """Keep the engine at the other end of `link` up to date, until cancelled."""
        attempts = 0
        while True:
            self._changed.clear()
            if self._settled.is_set():
                attempts = 0
                await self._changed.wait()
                continue
            attempts += 1
            version = self._wanted.version
            try:
                self._sent = self._fitting()
                await link.send(self._sent)
                # An engine that is still warming up reads none of them, and each may hold a whole profile.
                patience = 1 if attempts <= QUICK_ATTEMPTS else SLOW_ATTEMPT
                async with asyncio.timeout(patience * self._ack_timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                if attempts == QUICK_ATTEMPTS:
                    log.warning(
                        "engine has not acknowledged settings, sending until it does", version=version
                    )
            except LinkError as error:
                log.warning("settings not sent", version=version, reason=str(error))
                await asyncio.sleep(self._ack_timeout_s)

    async def wait_settled(self) -> None:
        """Wait until the engine has the wanted settings, or has refused them. Only while `run` runs."""
        await self._settled.wait()

    def _fitting(self) -> EngineSettings:
        """What is wanted, without predictors of another engine, or a policy that it has refused."""
        settings = msgspec.structs.replace(self._wanted, delivery_s=self._delivery_s)
        if self._floors_s:
            tenants = (
                msgspec.structs.replace(each, tbt_floor_s=self._floors_s.get(each.tenant))
                for each in settings.tenants
            )
            settings = msgspec.structs.replace(settings, tenants=tuple(tenants))
        if self.profile_difference is not None:
            settings = msgspec.structs.replace(settings, predictors=None)
        if self._held is not None and self._taken is not None:
            policy, partitions, shadow = scheduling_of(self._taken)
            settings = msgspec.structs.replace(settings, policy=policy, partitions=partitions, shadow=shadow)
        return settings

    def _can_go_on_without(self, ack: Ack) -> bool:
        """Whether a refusal may be of the policy, and there is one to go on with."""
        if self._held is not None or self._taken is None or ack.version != self._wanted.version:
            return False
        return scheduling_of(self._wanted) != scheduling_of(self._taken)

    def _on_change(self) -> None:
        if (self.in_force and not self._sends_again) or self.refusal is not None:
            self._settled.set()
        else:
            self._settled.clear()
        self._changed.set()


def scheduling_of(settings: EngineSettings) -> tuple[str, tuple[tuple[int, int], ...] | None, str | None]:
    """The policy, its splits and its shadow."""
    return settings.policy, settings.partitions, settings.shadow
