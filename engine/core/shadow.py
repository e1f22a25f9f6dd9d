"""A policy in the shadow of the one in force: it decides on the same observations without acting.

It is asked where a prefill is about to begin, which is where policies differ: one that is under way was begun
as the other policy wanted it. Its state is what its own decisions and the measured steps have made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.types import Decision, Feedback, Mode, Observation, PrefillFeedback

EVERY_S = 0.02
"""Between two questions, at least: the policy in force must not wait for its shadow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTally:
    """How often the two differed, and in what; of one decision the first that differs counts."""

    decisions: int = 0
    same: int = 0
    other_mode: int = 0
    """One splits and the other fuses, or one waits."""
    other_split: int = 0
    """Other SMs for the two sides."""
    other_requests: int = 0
    """Other waiting requests, or in another order."""
    late: int = 0
    """Decisions of the policy in force that do not meet the TBT target, by its own prediction."""
    shadow_late: int = 0
    prefill_sms: int = 0
    """Summed over the decisions; fused steps and prefills alone count as all SMs."""
    shadow_prefill_sms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """The second policy with what it remembers."""

    policy: AnyPolicy
    state: object
    tally: ShadowTally = ShadowTally()
    asked_s: float = -EVERY_S

    @classmethod
    def of(cls, policy: AnyPolicy) -> Shadow:
        """Nothing was asked yet."""
        return cls(policy=policy, state=policy.initial_state())

    def adopted_by(self, policy: AnyPolicy, *, is_refined: bool) -> Shadow:
        """The same policy in another context, as `Policy.adopt` has it; what was counted stays."""
        state = policy.adopt(self.state, self.policy.context, is_refined=is_refined)
        return replace(self, policy=policy, state=state)

    def after(self, obs: Observation, decision: Decision, table: PartitionTable) -> Shadow:
        """Ask it what was decided in the groups of `table`, if this is a prefill's begin and it is time."""
        under_way = obs.prefill is not None or obs.preempted is not None
        if under_way or not obs.waiting or obs.now_s - self.asked_s < EVERY_S:
            return self
        own = self.policy.table
        seen = replace(obs, partition_id=_index(own, table, obs.partition_id) or own.PREFILL_ONLY)
        shadowed, state = self.policy.decide(seen, self.state)
        tally = _counted(self.tally, _Seen.of(decision, table), _Seen.of(shadowed, own))
        return replace(self, state=state, tally=tally, asked_s=obs.now_s)

    def learned(self, feedback: Feedback, table: PartitionTable) -> Shadow:
        """A step was measured that the policy in force had decided in the groups of `table`."""
        index = _index(self.policy.table, table, feedback.partition_id)
        if index is None:
            return self  # it has no such split
        state = self.policy.learn(replace(feedback, partition_id=index), self.state)
        return self if state is self.state else replace(self, state=state)

    def learned_prefill(self, feedback: PrefillFeedback) -> Shadow:
        """A prefill by layers ended that the policy in force had begun."""
        state = self.policy.learn_prefill(feedback, self.state)
        return self if state is self.state else replace(self, state=state)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What of a decision can be compared."""

    mode: Mode
    prefill_sms: int
    admit: tuple[str, ...]
    is_late: bool

    @classmethod
    def of(cls, decision: Decision, table: PartitionTable) -> _Seen:
        group = table.groups[decision.partition_id]
        mode, total = decision.mode, table.rules.total_sms
        prefill_sms = total if mode.is_one_batch else group.prefill_sms
        if not decision.admit:
            # Whatever else it does, it begins no prefill now.
            mode, prefill_sms = Mode.DECODE if decision.decode_steps else Mode.IDLE, 0
        slack_s = decision.numbers.tbt_slack_s
        return cls(mode, prefill_sms, decision.admit, slack_s is not None and slack_s < 0.0)


def _counted(tally: ShadowTally, acting: _Seen, shadow: _Seen) -> ShadowTally:
    other_mode = acting.mode is not shadow.mode
    other_split = not other_mode and acting.prefill_sms != shadow.prefill_sms
    other_requests = not other_mode and not other_split and acting.admit != shadow.admit
    return ShadowTally(
        decisions=tally.decisions + 1,
        same=tally.same + (not (other_mode or other_split or other_requests)),
        other_mode=tally.other_mode + other_mode,
        other_split=tally.other_split + other_split,
        other_requests=tally.other_requests + other_requests,
        late=tally.late + acting.is_late,
        shadow_late=tally.shadow_late + shadow.is_late,
        prefill_sms=tally.prefill_sms + acting.prefill_sms,
        shadow_prefill_sms=tally.shadow_prefill_sms + shadow.prefill_sms,
    )


def _index(wanted: PartitionTable, table: PartitionTable, index: int) -> int | None:
    """The group of `wanted` with the sizes of this one of `table`; None if it has none."""
    sizes = table.groups[index]
    return next((found for found, group in enumerate(wanted.groups) if group == sizes), None)
