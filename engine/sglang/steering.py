"""The policy in force, what it believes, and how the daemon's settings replace both while serving."""

from __future__ import annotations

import logging
from dataclasses import replace

from pdmuxd.engine.core.errors import PartitionError, PolicyError, ProfileError, SloError
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Policy
from pdmuxd.engine.core.policies.chunked import ChunkedPolicy
from pdmuxd.engine.core.policies.prefill_first import PrefillFirstPolicy
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, Feedback, Observation
from pdmuxd.engine.link.messages import Ack, EngineSettings
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.link.targets import slo_of
from pdmuxd.engine.sglang.facts import EngineFacts
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.tracked import Target

FUSED_ONLY_POLICY = "chunked:512"
"""In place of a policy that may split, where the model has no layer-wise prefill: the fixed chunk that did
best on chat (H200, Llama-8B and CodeLlama-34B, SGLang 0.5.23)."""

_log = logging.getLogger(__name__)


def stream_groups(policy: Policy, made: PartitionTable) -> tuple[int, ...]:
    """For each group of the policy's table, the index of the streams with its sizes.

    Raises: PartitionError naming the groups there are: streams and their graphs are made at start.
    """
    found: list[int] = []
    for group in policy.table.groups:
        if not group.decode_sms:
            found.append(made.PREFILL_ONLY)
        elif not group.prefill_sms:
            found.append(made.decode_only)
        else:
            try:
                found.append(made.index_of(group.prefill_sms, group.decode_sms))
            except PartitionError as error:
                raise PartitionError(f"policy {policy.name}: {error}; groups are made at start") from error
    return tuple(found)


class Steering:
    """Decides and learns. New predictors are believed at once, a new policy once no prefill is under way."""

    def __init__(self, facts: EngineFacts, policy: str) -> None:
        self._facts = facts
        self._predictors: Predictors | None = None
        self._spec = policy
        self.policy, self.groups = self._build(policy, None)
        self.state = self.policy.initial_state()
        self._stored_guard = self.state.guard
        """As it came with the predictors in force; `state` has what was raised here since."""
        self.settings_version = 0
        self._next: tuple[Policy, tuple[int, ...]] | None = None
        self.group = self.policy.table.PREFILL_ONLY
        """Index into the policy's table of the group in force."""

    @property
    def profile_id(self) -> int:
        """Of the predictors in force or about to be; 0 for the engine's own."""
        return self._predictors.profile_id if self._predictors is not None else 0

    @property
    def is_changing(self) -> bool:
        """A new policy waits for the prefill under way; nothing new is admitted meanwhile."""
        return self._next is not None

    def decide(self, obs: Observation) -> Decision:
        """What to do until the next safe point."""
        decision, self.state = self.policy.decide(obs, self.state)
        return decision

    def learn(self, feedback: Feedback) -> None:
        """What a predicted step really took."""
        self.state = self.policy.learn(feedback, self.state)

    def change(self) -> bool:
        """Put the new policy in force, at a moment with no prefill under way; whether there was one."""
        if self._next is None:
            return False
        (self.policy, self.groups), self._next = self._next, None
        self.group = self.policy.table.PREFILL_ONLY
        self.state = self.policy.initial_state()
        self._stored_guard = self.state.guard
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

        Predictors of the profile in force, only refined, leave what was learned here as it is.
        """
        built = self._build(spec, predictors)
        policy = built[0]
        if (policy.name, policy.table) != (self.policy.name, self.policy.table):
            self._next = built
        else:
            self._next = None
            self.policy, self.groups = built
            guard = policy.initial_state().guard
            if self.profile_id and predictors is not None and predictors.profile_id == self.profile_id:
                self.state = replace(self.state, guard=self.state.guard.updated(self._stored_guard, guard))
            else:
                self.state = policy.initial_state()
            self._stored_guard = guard
        self._spec, self._predictors = spec, predictors

    def _build(self, spec: str, predictors: Predictors | None) -> tuple[Policy, tuple[int, ...]]:
        """The policy and the streams of its groups; one that only fuses if the model cannot be split.

        Raises: PolicyError, PartitionError, ProfileError; also for a policy that is then replaced.
        """
        context = self._facts.context(predictors)
        policy = build_policy(spec, context)
        groups = stream_groups(policy, self._facts.table)
        if self._facts.can_split or isinstance(policy, ChunkedPolicy | PrefillFirstPolicy):
            return policy, groups
        _log.warning(
            "pdmuxd: %s has no layer-wise prefill (forward_split_prefill), which policy %s may ask for: "
            "%s is in force instead",
            self._facts.model_name,
            policy.name,
            FUSED_ONLY_POLICY,
        )
        fused = build_policy(FUSED_ONLY_POLICY, context)
        return fused, stream_groups(fused, self._facts.table)

    def _check_partitions(self, wanted: tuple[tuple[int, int], ...] | None) -> None:
        made = tuple((split.prefill_sms, split.decode_sms) for split in self._facts.table.splits)
        missing = [f"{p},{d}" for p, d in wanted or () if (p, d) not in made]
        if missing:
            there = ", ".join(f"{p},{d}" for p, d in made)
            raise PartitionError(
                f"partition {missing[0]} was not made when the engine started (there are {there}); "
                "restart the engine to change the table"
            )
