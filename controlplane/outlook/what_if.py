"""What would become of a TBT target: the policy in force is asked about a load that nobody observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.outlook.assumed_load import Assumed, Wish, assume
from pdmuxd.controlplane.telemetry.recent import P90
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import EngineError, PartitionError, PolicyError
from pdmuxd.engine.core.estimates.misprediction_breaker import MispredictionBreaker
from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.guard import MAX_RATIO
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.policies.base import AnyPolicy, Plan, PlanKind, PolicyContext
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.slo import TBT_RANGE_S
from pdmuxd.engine.core.types import Decision, Mode, Reason
from pdmuxd.engine.link.messages import Hello

FIXED_FOR_NOW = "predictions were wrong of late, so the engine has fixed steps until they are right again"
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
    """The guard and the estimates are as they were when the engine started."""


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
        return next((plan for plan in self.plans if plan.kind is PlanKind.FUSED), None)

    @property
    def is_feasible(self) -> bool:
        return self.chosen is not None and self.chosen.meets


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The answer for one load."""

    wish: Wish
    assumed: Assumed
    predictors: str
    policy: str
    groups: tuple[Partition, ...]
    """Of the policy, which the plans index."""
    answer: Answer
    planned_tbt_s: float
    """The target less the delivery, which the worst case must keep."""
    lowest_feasible_tbt_s: float | None
    """The strictest target that it meets; None if it meets none."""
    are_predictions_wrong: bool = False
    """Whether the engine has fixed steps for now; the answer is what it does once predictions are right."""
    busy: Outlook | None = None
    """For a busy moment (p90) of the last minutes; None if that is not known."""

    @property
    def text(self) -> str:
        words = in_words(self.policy, self.answer, self.groups, self.wish.tbt_s, self.planned_tbt_s)
        return f"{words}; {FIXED_FOR_NOW}" if self.are_predictions_wrong else words


class Questions:
    """The policy in force, asked about loads that nobody observed. One per question of an operator: its
    predictors are those of that moment, and a decision that was asked for already is kept."""

    def __init__(
        self, policy: AnyPolicy, hello: Hello, predictors: str, *, are_predictions_wrong: bool = False
    ) -> None:
        self.policy = policy
        self.hello = hello
        self.predictors = predictors
        self.are_predictions_wrong = are_predictions_wrong
        self._state = policy.initial_state()
        self._decisions: dict[tuple[float, int, int, int, int], Decision] = {}

    def ask(self, tbt_s: float, load: Assumed) -> Answer:
        obs = load.observed(tbt_s, self.policy, self.hello)
        return Answer(
            decision=self.policy.decide(obs, self._state)[0], plans=self.policy.plans(obs, self._state)
        )

    def decide(self, tbt_s: float, load: Assumed) -> Decision:
        """What it would do, without the plans, which take several times as long."""
        key = (
            tbt_s,
            load.decode_bs,
            load.decode_context_tokens,
            load.prefill_new_tokens,
            load.prefill_reused_tokens,
        )
        found = self._decisions.get(key)
        if found is None:
            obs = load.observed(tbt_s, self.policy, self.hello)
            found = self._decisions[key] = self.policy.decide(obs, self._state)[0]
        return found

    def lowest_tbt_s(self, load: Assumed) -> float | None:
        """The strictest target that it meets under this load; None if it meets none."""
        return _lowest(lambda tbt_s: self.ask(tbt_s, load).is_feasible)

    def outlook(self, wish: Wish, assumed: Assumed, busy: Outlook | None = None) -> Outlook:
        """The whole answer for one load."""
        return Outlook(
            wish=wish,
            assumed=assumed,
            predictors=self.predictors,
            policy=self.policy.name,
            groups=self.policy.table.groups,
            answer=self.ask(wish.tbt_s, assumed),
            planned_tbt_s=self.policy.context.planned_tbt_s(wish.tbt_s),
            lowest_feasible_tbt_s=self.lowest_tbt_s(assumed),
            are_predictions_wrong=self.are_predictions_wrong,
            busy=busy,
        )


def questions(telemetry: Telemetry, predictors: Predictors, *, policy: str | None = None) -> Questions:
    """Ask the policy in force, or another. Raises: EngineError if no engine has introduced itself yet."""
    hello, predicting = telemetry.status().hello, predictors()
    if hello is None or predicting is None:
        raise EngineError("no engine has introduced itself yet, so there is nothing to predict with")
    learned = telemetry.learned.estimates(predicting.context)
    context = _in_use(predicting.context, learned, telemetry)
    try:
        built = build_policy(policy or predicting.policy, context)
    except (PartitionError, PolicyError) as error:
        raise EngineError(f"the policy {policy or 'in force'} cannot be asked: {error}") from error
    return Questions(built, hello, predicting.name, are_predictions_wrong=learned.breaker.is_open)


def what_if(wish: Wish, telemetry: Telemetry, predictors: Predictors) -> Outlook:
    """Answer for the engine in force. Raises: EngineError if none has introduced itself yet."""
    asked = questions(telemetry, predictors)
    usual, busy = assume(wish, telemetry), assume(wish, telemetry, P90)
    knows_busy = usual.source in ("recent", "mixed") and bool(telemetry.recent.samples(telemetry.clock()))
    return asked.outlook(wish, usual, asked.outlook(wish, busy) if knows_busy else None)


def in_words(
    policy: str, answer: Answer, groups: tuple[Partition, ...], tbt_s: float, planned_tbt_s: float
) -> str:
    """What the policy would do, in one line."""
    chosen = answer.chosen
    if chosen is None:
        return f"{policy} prefills nothing beside this decode batch"
    what = plan_in_words(chosen, groups)
    times = ""
    if chosen.worst_gap_s is not None:
        times = f": worst case {to_ms(chosen.worst_gap_s):.3g} ms of {to_ms(tbt_s):.3g} ms"
    if chosen.meets:
        return what + times
    if chosen.worst_gap_s is not None and planned_tbt_s < tbt_s:
        times += f", of which the delivery takes {to_ms(tbt_s - planned_tbt_s):.3g} ms"
    no_split = chosen.reason is Reason.TBT_INFEASIBLE
    return f"{'no split meets it; with most' if no_split else 'it is missed'}, {what}{times}"


def plan_in_words(plan: Plan, groups: tuple[Partition, ...]) -> str:
    """How the device is used."""
    if plan.kind is PlanKind.SPLIT:
        group = groups[plan.partition_id]
        return f"{group.decode_sms} SMs decode and {group.prefill_sms} prefill"
    return f"fused steps of {plan.prompt_tokens} prompt tokens"


def tokens_per_s(plan: Plan, new_tokens: int) -> float | None:
    """Prompt tokens a second, of a split for a batch of so many."""
    numbers = plan.numbers
    if plan.kind is PlanKind.SPLIT:
        prefill_s = numbers.predicted_prefill_s or plan.finish_s
        return round(new_tokens / prefill_s, 1) if prefill_s else None
    step_s = numbers.predicted_fused_s
    return round(plan.prompt_tokens / step_s, 1) if step_s else None


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


def _in_use(context: PolicyContext, learned: StepEstimates, telemetry: Telemetry) -> PolicyContext:
    """The context with what was learned, as the engine's decisions have shown it. Predictions are used even
    where they were wrong of late: nothing else can answer for a load that nobody observed."""
    seen = {cell: view.ratio for cell, view in telemetry.guard.snapshot() if 1.0 <= view.ratio <= MAX_RATIO}
    guard = replace(context.guard, cells={**context.guard.cells, **seen}) if seen else context.guard
    return replace(context, guard=guard, learned=replace(learned, breaker=MispredictionBreaker()))
