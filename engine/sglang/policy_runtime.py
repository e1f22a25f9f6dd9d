"""The policy in force, what it believes, and how the daemon's settings replace both while serving."""

from __future__ import annotations

import logging

from pdmuxd.engine.core.errors import PartitionError, PolicyError, ProfileError, SloError
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.policies.chunked import ChunkedPolicy
from pdmuxd.engine.core.policies.fusedsteps import FIXED_STEP_TOKENS
from pdmuxd.engine.core.policies.prefill_first import PrefillFirstPolicy
from pdmuxd.engine.core.policies.registry import NO_PREFILL_GRAPHS, build_policy, parse_policy
from pdmuxd.engine.core.types import Decision, Feedback, Observation
from pdmuxd.engine.link.messages import Ack, EngineSettings
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.link.targets import slo_of
from pdmuxd.engine.sglang.engine_info import EngineInfo
from pdmuxd.engine.sglang.partition_tables import check_made, stream_groups
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.tracked_request import Target

FUSED_ONLY_POLICY = f"chunked:{FIXED_STEP_TOKENS}"
"""In place of a policy that may split, where the model has no layer-wise prefill."""

_log = logging.getLogger(__name__)


class PolicyRuntime:
    """Decides and learns. New predictors are believed at once, a new policy once no prefill is under way."""

    def __init__(self, engine_info: EngineInfo, policy: str) -> None:
        self._engine_info = engine_info
        self._predictors: Predictors | None = None
        self._spec = policy
        self._noted: set[str] = set()
        self.policy, self._groups = self._build(policy, None)
        self.state: object = self.policy.initial_state()
        """The policy's memory: nobody else reads it."""
        self.settings_version = 0
        self._next: tuple[AnyPolicy, tuple[int, ...]] | None = None
        self.partition_id = self.policy.table.PREFILL_ONLY
        """Index into the policy's table of the group in force."""

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
        return self.policy.decide(obs, self.state)

    def commit(self, state: object) -> None:
        """The decision that led to this state is carried out."""
        self.state = state

    def stream_group(self, decision: Decision) -> int:
        """The streams to carry a decision out on, by their group: fused steps and decode by itself run on the
        decode stream of the one where decode has all SMs, which is the last of any table."""
        return self._groups[decision.partition_id]

    def learn(self, feedback: Feedback) -> None:
        """What a predicted step really took."""
        self.state = self.policy.learn(feedback, self.state)

    def learn_prefill(self, new_tokens: int, reused_tokens: int, measured_s: float) -> None:
        """What a prefill of one request took alone on all SMs."""
        sample = self._engine_info.prefill_sample(new_tokens, reused_tokens, measured_s)
        self.state = self.policy.learn_prefill(sample, self.state)

    def change(self) -> bool:
        """Put the new policy in force, at a moment with no prefill under way; whether there was one."""
        if self._next is None:
            return False
        (self.policy, self._groups), self._next = self._next, None
        self.partition_id = self.policy.table.PREFILL_ONLY
        self.state = self.policy.initial_state()
        return True

    def apply(self, settings: EngineSettings, ledger: Ledger) -> Ack:
        """Put settings in force for waiting, running and later requests; a refusal changes nothing.

        Versions only grow: an older one is refused, the present one is put in force again.
        """
        if settings.version < self.settings_version:
            return Ack(
                version=settings.version,
                error=f"settings version {self.settings_version} is already in force",
            )
        try:
            targets = {
                each.tenant: Target(slo=slo_of(each), version=each.slo_version) for each in settings.tenants
            }
            self._check_partitions(settings.partitions)
            if (settings.policy, settings.predictors) != (self._spec, self._predictors):
                self._use(settings.policy, settings.predictors)
        except (PolicyError, PartitionError, SloError, ProfileError) as error:
            return Ack(version=settings.version, error=str(error))
        ledger.retarget(targets)
        self.settings_version = settings.version
        return Ack(version=settings.version)

    def _use(self, spec: str, predictors: Predictors | None) -> None:
        """Raises as `_build`, and changes nothing then.

        Predictors of the profile in force, only refined: the policy says what of that it has learned stays.
        """
        built = self._build(spec, predictors)
        policy = built[0]
        if (policy.name, policy.table) != (self.policy.name, self.policy.table):
            self._next = built
        else:
            profile_id = predictors.profile_id if predictors is not None else 0
            is_refined = profile_id == self.profile_id
            self.state = policy.adopt(self.state, self.policy.context, is_refined=is_refined)
            self._next = None
            self.policy, self._groups = built
        self._spec, self._predictors = spec, predictors

    def _build(self, spec: str, predictors: Predictors | None) -> tuple[AnyPolicy, tuple[int, ...]]:
        """The policy and the streams of its groups; one that only fuses if the model cannot be split.

        Raises: PolicyError, PartitionError, ProfileError; also for a policy that is then replaced.
        """
        context = self._engine_info.context(predictors)
        policy = build_policy(spec, context)
        groups = stream_groups(policy, self._engine_info.table)
        if not self._engine_info.can_split and not isinstance(policy, ChunkedPolicy | PrefillFirstPolicy):
            policy = build_policy(FUSED_ONLY_POLICY, context)
            groups = stream_groups(policy, self._engine_info.table)
        self._note(spec, in_force=policy.name)
        return policy, groups

    def _note(self, spec: str, *, in_force: str) -> None:
        """Say what this engine does not do of what a policy is, once for each policy that is asked for."""
        if spec in self._noted:
            return
        self._noted.add(spec)
        if in_force == FUSED_ONLY_POLICY != spec:
            _log.warning(
                "pdmuxd: %s has no layer-wise prefill (forward_split_prefill), which policy %s may ask for: "
                "%s is in force instead",
                self._engine_info.model_name,
                spec,
                in_force,
            )
        elif parse_policy(spec).wants_prefill_graphs:
            _log.warning("pdmuxd: policy %s: %s", spec, NO_PREFILL_GRAPHS)

    def _check_partitions(self, wanted: tuple[tuple[int, int], ...] | None) -> None:
        splits = (Partition(prefill_sms=p, decode_sms=d) for p, d in wanted or ())
        check_made("the partition table", splits, self._engine_info.table)
