"""What the engine in force decides by, rebuilt on this side of the link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.outlook.what_if import Predicting
from pdmuxd.engine.core.guard import UNMEASURED_RATIO, ContentionGuard
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.partitions import Partition, SmRules
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import EngineSettings, Hello
from pdmuxd.engine.link.predictors import Predictors, contention_guard, latency_model

EMULATOR = "emulator"


class LivePredictors:
    """Answers with the profile in the settings, else with the engine's own, else with the roofline."""

    def __init__(
        self,
        *,
        status: Callable[[], EngineStatus],
        wanted: Callable[[], EngineSettings],
        emulated: str,
        delivery_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`delivery_s`: by how much gaps are longer at clients, as engines are told it."""
        self._status = status
        self._wanted = wanted
        self._profile_name = emulated
        self._delivery_s = delivery_s

    def __call__(self) -> Predicting | None:
        """None until an engine has reported enough about itself."""
        status, wanted = self._status(), self._wanted()
        hello, predictors = status.hello, wanted.predictors
        if hello is None:
            return None
        if predictors is not None and difference(predictors, hello) is not None:
            predictors = None
        policy = status.stats.policy if status.stats is not None else wanted.policy
        if hello.engine == EMULATOR:
            name = self._emulated.name if predictors is None else predictors.profile
            context = self._emulated.context(predictors)
            return Predicting(name=name, policy=policy, context=self._told(context, status, wanted))
        if hello.roofline is None:
            return None
        name = "roofline" if predictors is None else predictors.profile
        context = _context(hello, hello.roofline, predictors)
        return Predicting(name=name, policy=policy, context=self._told(context, status, wanted))

    def _told(self, context: PolicyContext, status: EngineStatus, wanted: EngineSettings) -> PolicyContext:
        return _among(context, status, wanted).delivering(self._delivery_s())

    @cached_property
    def _emulated(self) -> Profile:
        return load_profile(self._profile_name)


def _among(context: PolicyContext, status: EngineStatus, wanted: EngineSettings) -> PolicyContext:
    """Take the splits that an operator has set, if the engine has taken them and splits at all."""
    is_unsplit = status.hello is not None and status.hello.unsplit
    if wanted.partitions is None or status.policy_difference is not None or is_unsplit:
        return context
    return replace(
        context, splits=tuple(Partition(prefill_sms=p, decode_sms=d) for p, d in wanted.partitions)
    )


def _context(hello: Hello, roofline: RooflineModel, predictors: Predictors | None) -> PolicyContext:
    """The context as the plugin makes it in the engine."""
    device = roofline.device
    latency: LatencyModel = roofline
    guard = ContentionGuard(default_ratio=UNMEASURED_RATIO)
    if predictors is not None:
        latency, guard = latency_model(predictors, roofline), contention_guard(predictors)
    return PolicyContext(
        rules=SmRules(total_sms=device.total_sms, min_sms=device.min_sms, multiple_sms=device.multiple_sms),
        layers=roofline.model.layers,
        latency=latency,
        guard=guard,
        splits=tuple(Partition(prefill_sms=p, decode_sms=d) for p, d in hello.partitions if p and d),
        captures_prefill=False,
        delivery_s=hello.delivery_s,
    )
