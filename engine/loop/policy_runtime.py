"""The policy in force, and how the daemon's settings replace it and what it believes while serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from pdmuxd.engine.core.errors import PartitionError, PolicyError, ProfileError, SloError
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.shadow import Shadow
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import Decision, Feedback, Observation
from pdmuxd.engine.link.messages import Ack, EngineSettings, ShadowCounts, TenantSlo
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.link.targets import slo_of
from pdmuxd.engine.loop.engine_info import EngineInfo, Splits
from pdmuxd.engine.loop.prefill import LayerwiseBatch
from pdmuxd.engine.loop.records import prefill_feedback
from pdmuxd.engine.loop.requests import RequestBook, Target
from pdmuxd.engine.loop.state import LoopState

OVERTAKING_S = 10.0
"""For so long after a new policy was asked for, waiting requests may still overtake the prefill that it waits
for. A prefill of the batch class gives way without end, and the new policy would never come."""


def target_of(sent: TenantSlo) -> Target:
    """A tenant's objectives as the engine keeps them. Raises: SloError."""
    slo = slo_of(sent)
    return Target(
        slo=slo,
        version=sent.slo_version,
        priority_class=sent.priority_class,
        weight=sent.weight,
        max_wait_s=None if sent.max_wait_ms is None else sent.max_wait_ms / 1000.0,
        late_action=sent.late_action,
        tbt_floor_s=0.0 if sent.tbt_floor_s is None else replace(slo, tbt_s=sent.tbt_floor_s).tbt_s,
    )


_Wanted = tuple[str, Predictors | None, Splits | None, float | None]
"""Policy, predictors, splits and delivery, as `EngineInfo.build` takes them."""


class PolicyRuntime:
    """Decides and learns. New predictors are believed at once, a new policy once no prefill is under way."""

    def __init__(self, engine: EngineInfo, policy: str) -> None:
        """Raises: PolicyError, PartitionError."""
        self._engine = engine
        self._wanted: _Wanted = (policy, None, None, None)
        self._shadow_spec: str | None = None
        self.shadow: Shadow | None = None
        """Decides on the same observations; nothing is done of it."""
        self.policy, self._groups = engine.build(policy, None, None)
        self.state = LoopState(
            policy_state=self.policy.initial_state(), partition_id=self.policy.table.PREFILL_ONLY
        )
        self.settings_version = 0
        self.attainment_ratio = DEFAULT_SLO.attainment_ratio
        """Of all tenants' targets the strictest."""
        self._next: tuple[AnyPolicy, tuple[int, ...]] | None = None
        self._next_since_s: float | None = None

    @property
    def engine(self) -> EngineInfo:
        """What it decides for."""
        return self._engine

    @property
    def profile_id(self) -> int:
        """The id of the predictors in force or about to be; 0 for the engine's own."""
        predictors = self._wanted[1]
        return predictors.profile_id if predictors is not None else 0

    @property
    def is_changing(self) -> bool:
        """A new policy waits for the prefill under way, and nothing is begun that would put it off."""
        return self._next is not None

    def hides_queue(self, now_s: float) -> bool:
        """Whether a new policy has waited for so long that nobody may overtake the prefill under way."""
        if self._next is None:
            self._next_since_s = None
            return False
        if self._next_since_s is None:
            self._next_since_s = now_s
        return now_s - self._next_since_s > OVERTAKING_S

    def decide(self, obs: Observation) -> tuple[Decision, object]:
        """What to do until the next safe point, and the state to commit if that is done. Changes nothing."""
        return self.policy.decide(obs, self.state.policy_state)

    def commit(self, policy_state: object) -> None:
        """The decision that led to this state is carried out."""
        self.state.policy_state = policy_state

    def stream_group(self, decision: Decision) -> int:
        """The streams to carry a decision out on, by their group: fused steps and decode by itself run on the
        decode stream of the one where decode has all SMs, which is the last of any table."""
        return self._groups[decision.partition_id]

    def learn(self, feedback: Feedback) -> None:
        """What a predicted step really took."""
        if self.shadow is not None:
            self.shadow = self.shadow.learned(feedback, self.policy.table)
        self.state.policy_state = self.policy.learn(feedback, self.state.policy_state)

    def shadowed(self, obs: Observation, decision: Decision) -> None:
        """The policy in force has decided: ask its shadow, if there is one."""
        if self.shadow is not None:
            self.shadow = self.shadow.after(obs, decision, self.policy.table)

    def shadow_counts(self) -> ShadowCounts | None:
        """Counts for the heartbeat."""
        if self.shadow is None:
            return None
        return ShadowCounts(policy=self.shadow.policy.name, **asdict(self.shadow.tally))

    def learn_prefill(self, batch: LayerwiseBatch) -> None:
        """A prefill was finished, which may say what prefills of its shape take."""
        took = prefill_feedback(batch, self._engine.prefill_sample(batch))
        if took is not None:
            self.state.policy_state = self.policy.learn_prefill(took, self.state.policy_state)
            if self.shadow is not None:
                self.shadow = self.shadow.learned_prefill(took)

    def change(self) -> bool:
        """Put the new policy in force, at a moment with no prefill under way; whether there was one."""
        if self._next is None:
            return False
        (self.policy, self._groups), self._next = self._next, None
        self.state.partition_id = self.policy.table.PREFILL_ONLY
        self.state.policy_state = self.policy.initial_state()
        return True

    def apply(self, settings: EngineSettings, book: RequestBook) -> Ack:
        """Put settings in force for waiting, running and later requests; a refusal changes nothing.

        Versions only grow: an older one is refused, the present one is put in force again.
        """
        if settings.version < self.settings_version:
            return Ack(
                version=settings.version,
                error=f"settings version {self.settings_version} is already in force",
            )
        try:
            targets = {each.tenant: target_of(each) for each in settings.tenants}
            self.use(
                settings.policy,
                settings.predictors,
                splits_of(settings.partitions),
                shadow=settings.shadow,
                delivery_s=settings.delivery_s,
            )
        except (PolicyError, PartitionError, SloError, ProfileError) as error:
            return Ack(version=settings.version, error=str(error))
        self.retarget(targets, book)
        self.settings_version = settings.version
        return Ack(version=settings.version)

    def retarget(self, targets: Mapping[str, Target], book: RequestBook) -> None:
        """Put changed targets in force."""
        book.retarget(targets)
        ratios = (target.slo.attainment_ratio for target in targets.values())
        self.attainment_ratio = max(ratios, default=DEFAULT_SLO.attainment_ratio)

    def use(
        self,
        spec: str,
        predictors: Predictors | None,
        splits: Splits | None = None,
        *,
        shadow: str | None = None,
        delivery_s: float | None = None,
    ) -> None:
        """Decide by this policy and these predictors from now on, or once no prefill is under way.

        Raises: PolicyError, PartitionError, ProfileError, and changes nothing then.

        Predictors of the profile in force, only refined: the policy says what of that it has learned stays.
        """
        wanted = (spec, predictors, splits, delivery_s)
        is_same = wanted == self._wanted
        if is_same and shadow == self._shadow_spec:
            return
        shadowing = None
        if shadow is not None:
            shadowing, _ = self._engine.build(shadow, predictors, splits, delivery_s)
        built = None if is_same else self._engine.build(*wanted)
        self._shadow(shadow, shadowing, is_another=spec != self._wanted[0], predictors=predictors)
        if built is None:
            return
        policy = built[0]
        if (policy.name, policy.table) != (self.policy.name, self.policy.table):
            self._next = built
        else:
            profile_id = predictors.profile_id if predictors is not None else 0
            is_refined = profile_id == self.profile_id
            self.commit(policy.adopt(self.state.policy_state, self.policy.context, is_refined=is_refined))
            self._next = None
            self.policy, self._groups = built
        self._wanted = wanted

    def _shadow(
        self, spec: str | None, policy: AnyPolicy | None, *, is_another: bool, predictors: Predictors | None
    ) -> None:
        """What a shadow has counted is of two policies: if either is another, or has other splits, it starts
        anew."""
        before, known = self.shadow, spec == self._shadow_spec and not is_another
        self._shadow_spec = spec
        if policy is None:
            self.shadow = None
        elif before is not None and known and policy.table == before.policy.table:
            is_refined = (predictors.profile_id if predictors is not None else 0) == self.profile_id
            self.shadow = before.adopted_by(policy, is_refined=is_refined)
        else:
            self.shadow = Shadow.of(policy)


def splits_of(pairs: tuple[tuple[int, int], ...] | None) -> Splits | None:
    """Splits as the link carries them."""
    if pairs is None:
        return None
    return tuple(Partition(prefill_sms=prefill, decode_sms=decode) for prefill, decode in pairs)
