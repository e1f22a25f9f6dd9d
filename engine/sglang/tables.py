"""Which partition groups an engine makes streams and graphs for, before it serves."""

from __future__ import annotations

from pdmuxd.engine.core.partitions import PartitionTable, SmRules, even_steps, with_split
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.facts import planning_context


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
