"""What the engine in force predicts with, rebuilt on this side of the link."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from pdmuxd.controlplane.status import EngineStatus
from pdmuxd.controlplane.what_if import Predicting
from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import EngineSettings, Hello
from pdmuxd.engine.link.predictors import Predictors, contention_guard, latency_model

EMULATOR = "emulator"
UNPROFILED_GUARD = ContentionGuard(default_ratio=1.3)
"""MuxWise 3.3.2: at most 1.3 on H100, for a model and GPU of which nothing was measured."""


class LivePredictors:
    """Answers with the profile in the settings, else with the engine's own, else with the roofline."""

    def __init__(
        self,
        *,
        status: Callable[[], EngineStatus],
        wanted: Callable[[], EngineSettings],
        emulated: str,
    ) -> None:
        self._status = status
        self._wanted = wanted
        self._profile_name = emulated

    def __call__(self) -> Predicting | None:
        """None while no engine has said enough of itself."""
        hello, predictors = self._status().hello, self._wanted().predictors
        if hello is None:
            return None
        if predictors is not None and (profiled := _profiled(hello, predictors)) is not None:
            return profiled
        if hello.engine == EMULATOR:
            context = self._emulated.policy_context
            return Predicting(name=self._emulated.name, latency=context.latency, guard=context.guard)
        return _roofline(hello)

    @cached_property
    def _emulated(self) -> Profile:
        return load_profile(self._profile_name)


def _profiled(hello: Hello, predictors: Predictors) -> Predicting | None:
    if hello.roofline is None or difference(predictors, hello) is not None:
        return None
    model = latency_model(predictors, hello.roofline)
    return Predicting(name=predictors.profile, latency=model, guard=contention_guard(predictors))


def _roofline(hello: Hello) -> Predicting | None:
    if hello.roofline is None:
        return None
    return Predicting(name="roofline", latency=hello.roofline, guard=UNPROFILED_GUARD)
