"""Learns from what the engine reports, and stores what was learned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.engine.core.errors import PdmuxdError
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import Hello, IterationRecord
from pdmuxd.engine.link.predictors import Predictors, latency_model
from pdmuxd.engine.profiling.refine import Refiner

PERIOD_S = 5.0
"""How often what was learned is stored and sent to the engine, which has raised its own guard long before."""

log = structlog.get_logger("pdmuxd.refinement")


class Refinement:
    """Holds the refiner of the profile in force. All methods but those of the store run in the event loop."""

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        status: Callable[[], EngineStatus],
        clock: Callable[[], float],
        at_bound: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._control_plane = control_plane
        self._status = status
        self._clock = clock
        self._tell_at_bound = at_bound
        self._wanted: Predictors | None = None
        self._refiner: Refiner | None = None

    def use(self, snapshot: DirectorySnapshot) -> None:
        self._wanted = snapshot.predictors
        self._settle(self._status().hello)

    def on_hello(self, hello: Hello) -> None:
        # An emulated engine's own profile is what its device does: there is nothing better to measure.
        if self._wanted is None and hello.engine != "emulator":
            log.warning(
                "no profile is active: the engine predicts with its own",
                own=hello.profile or "roofline",
                provenance=hello.profile_provenance,
                hint="pdmuxd profile run --activate",
            )
        self._settle(hello)

    def on_iteration(self, record: IterationRecord) -> None:
        """The engine reports a step; it counts only if it was predicted with the profile in force."""
        stats = self._status().stats
        if (
            self._refiner is not None
            and stats is not None
            and stats.profile_id == self._refiner.predictors.profile_id
        ):
            self._refiner.observe(record, self._clock())

    async def store(self) -> None:
        """Keep what was learned since the last time."""
        refiner = self._refiner
        if refiner is None:
            self._tell_at_bound(())
            return
        changes = refiner.changes(self._clock())
        self._tell_at_bound(refiner.at_bound)
        if not changes:
            return
        for change in changes:
            if change.at_bound:
                log.error(
                    "a correction is at its bound: measure the profile again",
                    predictor=change.predictor,
                    sms=change.sms,
                    evidence=change.evidence,
                )
        try:
            await asyncio.to_thread(
                self._control_plane.profiles.learn, refiner.predictors.profile_id, changes
            )
        except PdmuxdError as error:
            log.warning("what was learned could not be stored", changes=len(changes), reason=str(error))

    def _settle(self, hello: Hello | None) -> None:
        """Make, keep up to date or drop the refiner."""
        wanted = self._wanted
        model = None if wanted is None or hello is None else _model(wanted, hello)
        if wanted is None or hello is None or hello.model_shape is None or model is None:
            self._refiner = None
        elif self._refiner is None or self._refiner.predictors.profile_id != wanted.profile_id:
            layers = hello.model_shape.layers
            self._refiner = Refiner(wanted, model, layers=layers, now_s=self._clock())
        elif self._refiner.predictors != wanted:
            self._refiner.adopt(wanted, model, self._clock())


def duties(refinement: Refinement) -> tuple[Duty, ...]:
    """Store what was learned every PERIOD_S, and once more at the end."""
    store = refinement.store
    return (Duty(name="refining the profile", work=store, period_s=PERIOD_S, at_end=store, is_alone=True),)


def _model(predictors: Predictors, hello: Hello) -> SoloRunModel | None:
    if hello.roofline is None or difference(predictors, hello) is not None:
        return None
    return latency_model(predictors, hello.roofline)
