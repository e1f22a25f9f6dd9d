"""The policy in force, and how the daemon's settings replace it and what it believes while serving."""

from __future__ import annotations

from pdmuxd.engine.core.errors import PartitionError, PolicyError, ProfileError, SloError
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.types import Decision, Feedback, Observation
from pdmuxd.engine.link.messages import Ack, EngineSettings, TenantSlo
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.link.targets import slo_of
from pdmuxd.engine.loop.engine_info import EngineInfo
from pdmuxd.engine.loop.prefill import LayerwiseBatch
from pdmuxd.engine.loop.requests import RequestBook, Target
from pdmuxd.engine.loop.state import LoopState


def target_of(sent: TenantSlo) -> Target:
    """A tenant's objectives as the engine keeps them. Raises: SloError."""
    return Target(
        slo=slo_of(sent),
        version=sent.slo_version,
        priority_class=sent.priority_class,
        weight=sent.weight,
        max_wait_s=None if sent.max_wait_ms is None else sent.max_wait_ms / 1000.0,
        late_action=sent.late_action,
    )


class PolicyRuntime:
    """Decides and learns. New predictors are believed at once, a new policy once no prefill is under way."""

    def __init__(self, engine: EngineInfo, policy: str) -> None:
        """Raises: PolicyError, PartitionError."""
        self._engine = engine
        self._predictors: Predictors | None = None
        self._spec = policy
        self.policy, self._groups = engine.build(policy, None)
        self.state = LoopState(
            policy_state=self.policy.initial_state(), partition_id=self.policy.table.PREFILL_ONLY
        )
        self.settings_version = 0
        self._next: tuple[AnyPolicy, tuple[int, ...]] | None = None

    @property
    def engine(self) -> EngineInfo:
        """What it decides for."""
        return self._engine

    @property
    def profile_id(self) -> int:
        """Of the predictors in force or about to be; 0 for the engine's own."""
        return self._predictors.profile_id if self._predictors is not None else 0

    @property
    def is_changing(self) -> bool:
        """A new policy waits for the prefill under way; nothing new is admitted meanwhile."""
        return self._next is not None

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
        self.state.policy_state = self.policy.learn(feedback, self.state.policy_state)

    def learn_prefill(self, batch: LayerwiseBatch) -> None:
        """A prefill was finished, which may say what prefills of its shape take."""
        sample = self._engine.prefill_sample(batch)
        if sample is not None:
            self.state.policy_state = self.policy.learn_prefill(sample, self.state.policy_state)

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
            self.use(settings.policy, settings.predictors)
        except (PolicyError, PartitionError, SloError, ProfileError) as error:
            return Ack(version=settings.version, error=str(error))
        book.retarget(targets)
        self.settings_version = settings.version
        return Ack(version=settings.version)

    def use(self, spec: str, predictors: Predictors | None) -> None:
        """Decide by this policy and these predictors from now on, or once no prefill is under way.

        Raises: PolicyError, PartitionError, ProfileError, and changes nothing then.

        Predictors of the profile in force, only refined: the policy says what of that it has learned stays.
        """
        if (spec, predictors) == (self._spec, self._predictors):
            return
        built = self._engine.build(spec, predictors)
        policy = built[0]
        if (policy.name, policy.table) != (self.policy.name, self.policy.table):
            self._next = built
        else:
            profile_id = predictors.profile_id if predictors is not None else 0
            is_refined = profile_id == self.profile_id
            self.commit(policy.adopt(self.state.policy_state, self.policy.context, is_refined=is_refined))
            self._next = None
            self.policy, self._groups = built
        self._spec, self._predictors = spec, predictors
