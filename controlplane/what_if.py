"""What would become of a TBT target: the policy in force is asked about a load that nobody observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdmuxd.controlplane.assumed_load import Assumed, Wish, assume
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import EngineError, PartitionError, PolicyError
from pdmuxd.engine.core.guard import MAX_RATIO, ContentionGuard
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.slo import TBT_RANGE_S
from pdmuxd.engine.core.types import Decision, Mode, Reason

_PRECISION_S = 1e-7
"""To which the lowest feasible target is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicting:
    """What the engine in force decides by."""

    name: str
    """Of the profile."""
    policy: str
    """Its specification."""
    context: PolicyContext
    """The guard is as it was when the engine started."""


Predictors = Callable[[], Predicting | None]
"""Asked at each question; None while nothing is known to predict with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the policy would do for one target, and the plans that it has."""

    decision: Decision
    plans: tuple[Plan, ...]

    @property
    def chosen(self) -> Plan | None:
        """The plan that the decision carries out; None if it prefills nothing for now."""
        decision = self.decision
        if not decision.admit:
            return None
        of_group = (plan for plan in self.plans if plan.partition_id == decision.partition_id)
        if decision.mode is not Mode.SPLIT:
            return next((plan for plan in of_group if plan.kind is not PlanKind.SPLIT), None)
        steps = decision.decode_steps
        return next(
            (plan for plan in of_group if (plan.kind, plan.decode_steps) == (PlanKind.SPLIT, steps)), None
        )

    @property
    def splits(self) -> tuple[Plan, ...]:
        """A plan for each split, by growing decode SMs: the chosen one, or else the first."""
        chosen = self.chosen
        by_partition_id: dict[int, Plan] = {}
        for plan in self.plans:
            if plan.kind is PlanKind.SPLIT and (plan is chosen or plan.partition_id not in by_partition_id):
                by_partition_id[plan.partition_id] = plan
        return tuple(by_partition_id[group] for group in sorted(by_partition_id))

    @property
    def fused(self) -> Plan | None:
        """Fused steps, if the policy has any."""
        return next((plan for plan in self.plans if plan.kind is PlanKind.FUSED), None)

    @property
    def is_feasible(self) -> bool:
        """Whether what it would do meets the target."""
        return self.chosen is not None and self.chosen.meets


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The answer."""

    wish: Wish
    assumed: Assumed
    predictors: str
    policy: str
    groups: tuple[Partition, ...]
    """Of the policy, which the plans index."""
    answer: Answer
    lowest_feasible_tbt_s: float | None
    """The strictest target that it meets; None if it meets none."""

    @property
    def text(self) -> str:
        """In one line."""
        chosen = self.answer.chosen
        if chosen is None:
            return f"{self.policy} prefills nothing beside this decode batch"
        if chosen.kind is PlanKind.SPLIT:
            group = self.groups[chosen.partition_id]
            what = f"{group.decode_sms} SMs decode and {group.prefill_sms} prefill"
        else:
            what = f"fused steps of {chosen.prompt_tokens} prompt tokens"
        times = ""
        if chosen.worst_gap_s is not None:
            times = f": worst case {to_ms(chosen.worst_gap_s):.3g} ms of {to_ms(self.wish.tbt_s):.3g} ms"
        if chosen.meets:
            return what + times
        no_split = chosen.reason is Reason.TBT_INFEASIBLE
        return f"{'no split meets it; with most' if no_split else 'it is missed'}, {what}{times}"


def what_if(wish: Wish, telemetry: Telemetry, predictors: Predictors) -> Outlook:
    """Answer for the engine in force. Raises: EngineError if none has introduced itself yet."""
    hello, predicting = telemetry.status().hello, predictors()
    if hello is None or predicting is None:
        raise EngineError("no engine has introduced itself yet, so there is nothing to predict with")
    guard = _in_use(predicting.context.guard, telemetry)
    try:
        policy = build_policy(predicting.policy, replace(predicting.context, guard=guard))
    except (PartitionError, PolicyError) as error:
        raise EngineError(f"the policy in force cannot be asked: {error}") from error
    assumed = assume(wish, telemetry)

    def ask(tbt_s: float) -> Answer:
        obs, state = assumed.observed(tbt_s, policy, hello), policy.initial_state()
        return Answer(decision=policy.decide(obs, state)[0], plans=policy.plans(obs, state))

    return Outlook(
        wish=wish,
        assumed=assumed,
        predictors=predicting.name,
        policy=policy.name,
        groups=policy.table.groups,
        answer=ask(wish.tbt_s),
        lowest_feasible_tbt_s=_lowest(lambda tbt_s: ask(tbt_s).is_feasible),
    )


def _lowest(is_feasible: Callable[[float], bool]) -> float | None:
    """The strictest feasible target, by halving: a policy that meets one meets every looser one."""
    low_s, high_s = TBT_RANGE_S
    if not is_feasible(high_s):
        return None
    if is_feasible(low_s):
        return low_s
    while high_s - low_s > _PRECISION_S:
        middle_s = 0.5 * (low_s + high_s)
        if is_feasible(middle_s):
            high_s = middle_s
        else:
            low_s = middle_s
    return high_s


def _in_use(guard: ContentionGuard, telemetry: Telemetry) -> ContentionGuard:
    """With the cells as the engine's decisions have shown them."""
    seen = {cell: view.ratio for cell, view in telemetry.guard.snapshot() if 1.0 <= view.ratio <= MAX_RATIO}
    return replace(guard, cells={**guard.cells, **seen}) if seen else guard
