"""`drift`: MuxWise's predecessor: two splits, contention-free predictors, preemption by headroom alone.

Source: DRIFT sections 3.3 to 3.5, algorithm 1, and section 4: the groups (108, 0), (84, 24), (72, 36) and
(0, 108) on an A100; on another device the same shares of its SMs, at sizes that it can make.
"""

from __future__ import annotations

from dataclasses import replace

from pdmuxd.engine.core.partitions import Partition, PartitionTable, SmRules
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.bestfit import BestFitPolicy, SplitOptions

PREFILL_SHARES = (84 / 108, 72 / 108)


def drift_table(rules: SmRules) -> PartitionTable:
    """DRIFT's four groups. Raises: PartitionError if the device is too small for two splits."""
    splits = []
    for share in PREFILL_SHARES:
        prefill_sms = round(rules.total_sms * share / rules.multiple_sms) * rules.multiple_sms
        splits.append(Partition(prefill_sms=prefill_sms, decode_sms=rules.total_sms - prefill_sms))
    return PartitionTable(rules=rules, splits=tuple(splits))


def drift(name: str, context: PolicyContext, options: SplitOptions) -> BestFitPolicy:
    """Build it; whatever the options say, DRIFT has no guard."""
    options = replace(options, guard=False, only_shorter_preempt=False)
    return BestFitPolicy.build(name, context, drift_table(context.rules), options)
