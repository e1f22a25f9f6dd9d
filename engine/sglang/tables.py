"""Which partition groups an engine makes streams and graphs for, before it serves."""

from __future__ import annotations

from pdmuxd.engine.core.partitions import PartitionTable, SmRules, even_steps, with_split
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.facts import planning_context

_SM_RULES = {6: (1, 1), 7: (2, 2), 8: (4, 2), 9: (8, 8)}
"""Compute capability to (fewest SMs of a green context, step): CUDA programming guide, green contexts."""


def sm_rules_of(total_sms: int, *, capability: int) -> SmRules:
    """What the driver allows on a device of this major compute capability."""
    low, step = _SM_RULES.get(capability, (8, 8))
    return SmRules(total_sms=total_sms, min_sms=low, multiple_sms=step)


def make_table(rules: SmRules, environment: PluginEnvironment) -> PartitionTable:
    """The operator's splits, or steps of 16 SMs; and those of the policy it starts with.

    Raises: PartitionError for a split that the device cannot make, PolicyError.
    """
    table = even_steps(rules)
    if environment.partitions is not None:
        table = PartitionTable(rules=rules, splits=())
        for prefill_sms, decode_sms in environment.partitions:
            table = with_split(table, prefill_sms, decode_sms)
    policy = build_policy(environment.policy, planning_context(rules))
    for split in policy.table.splits:
        table = with_split(table, split.prefill_sms, split.decode_sms)
    return table
