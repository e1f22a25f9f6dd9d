"""Looks every few seconds what TBT targets cost, counts it, and caps tenants that cost more than they may."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.outlook.tbt_cap_rules import CapRule
from pdmuxd.controlplane.outlook.tbt_costs import TbtCost, tbt_costs
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCap, TbtCaps
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.bus import DirectoryChanged, TbtFloorsChanged
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.process.state_file import read_state, write_state
from pdmuxd.engine.core.errors import EngineError, StoreError

PERIOD_S = 15.0

log = structlog.get_logger("pdmuxd.tbt_caps")


class TbtCapKeeper:
    """Implements KnownCaps. Who is capped is kept in a file of the state directory, so that a restart frees
    nobody; each node caps for its own engine.

    `look` is called in the event loop; the rest in any thread. `clock` must not go back.
    """

    def __init__(
        self,
        path: Path,
        telemetry: Telemetry,
        predictors: Predictors,
        control_plane: ControlPlane,
        *,
        clock: Callable[[], float],
        publish: Callable[[TbtFloorsChanged], None],
    ) -> None:
        self._path = path
        self._telemetry = telemetry
        self._predictors = predictors
        self._control_plane = control_plane
        self._clock = clock
        self._rule = CapRule(
            read_state(path, dict[str, TbtCap], log, "who was capped cannot be read; nobody is")
        )
        self._caps: TbtCaps = dict(self._rule.caps)
        telemetry.tbt_caps = self.caps()
        self._wake = asyncio.Event()
        self._looked_s: float | None = None
        self.cost_ratios: Mapping[str, float] = {}
        """By tenant, what its target costs, or would cost if it is capped, at the last look."""
        self.cost_s: dict[str, float] = {}
        """Seconds of prefill that targets have cost since the start; nothing while a tenant is capped."""
        self._publish = publish

    def caps(self) -> TbtCaps:
        """The tenants that are capped: whose limit was removed is free at once."""
        tenants = self._control_plane.directory.tenants
        return {name: cap for name, cap in self._caps.items() if cap.holds_for(tenants.get(name))}

    def floors_s(self) -> Mapping[str, float]:
        """The strictest TBT target to plan for, by tenant that is capped."""
        return {name: cap.tbt_s for name, cap in self.caps().items()}

    def costs(self) -> tuple[TbtCost, ...]:
        """What targets cost in the last minutes, looked up now. Raises: EngineError."""
        return tbt_costs(self._telemetry, self._predictors, self.floors_s())

    def on_directory(self, _changed: DirectoryChanged) -> None:
        """A tenant that is capped may be gone, or may cost what it likes from now on."""
        if self.caps().keys() != self._caps.keys():
            self._put_in_force()
            self._wake.set()

    async def look(self) -> None:
        """Look once, and put what follows in force."""
        if self._telemetry.status().hello is None:
            self._looked_s = None  # what was asked for meanwhile did not cost anybody anything
            return
        try:
            costs = await asyncio.to_thread(self.costs)
        except EngineError as error:
            log.debug("what targets cost is not known", reason=str(error))
            return
        self._count(costs)
        before = dict(self._rule.caps)
        begun, ended = self._rule.look(
            costs, self._telemetry.directory.tenants, now_s=self._telemetry.clock()
        )
        if self._rule.caps == before:
            return
        self._caps = dict(self._rule.caps)
        for name, cap in begun.items():
            await self._tell("tbt_cap.begin", name, cap)
        for name, cap in ended.items():
            await self._tell("tbt_cap.end", name, cap)
        try:
            await asyncio.to_thread(write_state, self._path, self._caps)
        except OSError as error:
            log.warning("who is capped is not kept over a restart", reason=str(error))
        self._put_in_force()

    async def run(self) -> None:
        """Look every PERIOD_S, and when a limit was changed, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.look()
            except Exception:
                log.exception("looking what targets cost failed and is tried again", after_s=PERIOD_S)

    def _put_in_force(self) -> None:
        self._telemetry.tbt_caps = self.caps()
        self._publish(TbtFloorsChanged(self.floors_s()))

    def _count(self, costs: tuple[TbtCost, ...]) -> None:
        now_s, before_s = self._clock(), self._looked_s
        self._looked_s = now_s
        self.cost_ratios = {cost.tenant: cost.prefill_ratio for cost in costs}
        if before_s is None:
            return
        for name, ratio in self.cost_ratios.items():
            if name not in self._caps:
                self.cost_s[name] = self.cost_s.get(name, 0.0) + ratio * (now_s - before_s)

    async def _tell(self, action: str, tenant: str, cap: TbtCap) -> None:
        """Tell the audit, the history and the log."""
        planned_ms = to_ms(cap.tbt_s)
        if action == "tbt_cap.begin":
            text = (
                f"{tenant}: capped, steps are planned for TBT {planned_ms:g} ms, since its own target cost "
                f"{cap.cost_ratio:.1%} of the prefill time"
            )
        else:
            text = f"{tenant}: no longer capped, steps are planned for its own TBT target again"
        self._telemetry.recorder.mark("slo", text, tenant=tenant)
        log.info(text, tenant=tenant, action=action)
        after = {
            "planned_tbt_ms": planned_ms,
            "cost_ratio": round(cap.cost_ratio, 4),
            # Nodes share the audit, and each caps for its own engine.
            "node": socket.gethostname(),
        }
        try:
            await asyncio.to_thread(
                self._control_plane.record_action, action, subject=tenant, after=after, tenant=tenant
            )
        except StoreError as error:
            log.warning("a cap is not in the audit", tenant=tenant, action=action, reason=str(error))


def duties(keeper: TbtCapKeeper) -> tuple[Duty, ...]:
    """Look all the time."""
    return (Duty(name="capping TBT targets by cost", work=keeper.run, is_alone=True),)
