"""Which partition groups an engine makes streams and graphs for, and which of them a policy uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pdmuxd.engine.core.errors import PartitionError
from pdmuxd.engine.core.partitions import (
    Partition,
    PartitionTable,
    SmRules,
    aligned_decode,
    even_steps,
    with_split,
)
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.sglang.engine_info import planning_context
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.marlin_blocks import Split, why_no_room, with_room

MAX_SPLITS = 24
"""Each has streams, an attention backend and decode graphs of its own. 200 SMs in steps of 8 make 24."""
_SETTING = "engine.sglang.partitions"
_SM_RULES = {6: (1, 1), 7: (2, 2), 8: (4, 2), 9: (8, 8)}
"""Compute capability to (fewest SMs of a green context, step): CUDA programming guide, green contexts."""


def sm_rules_of(total_sms: int, *, capability: int) -> SmRules:
    """What the driver allows on a device of this major compute capability."""
    low, step = _SM_RULES.get(capability, (8, 8))
    return SmRules(total_sms=total_sms, min_sms=low, multiple_sms=step)


def default_table(rules: SmRules) -> PartitionTable:
    """Whole groups for decode where SMs come in groups of 8 (Hopper); else six splits at 16-SM steps."""
    return aligned_decode(rules) if rules.multiple_sms == 8 else even_steps(rules)


def make_table(rules: SmRules, environment: PluginEnvironment) -> PartitionTable:
    """The operator's splits, or the default ones; and those of the policy it starts with.

    Raises: PartitionError for a split that the device cannot make, or for too many, PolicyError.
    """
    table = default_table(rules)
    if environment.partitions is not None:
        table = PartitionTable(rules=rules, splits=())
        for prefill_sms, decode_sms in environment.partitions:
            table = with_split(table, prefill_sms, decode_sms)
    policy = build_policy(environment.policy, planning_context(rules, table.splits))
    table = _with(table, policy.table.splits)
    if len(table.splits) > MAX_SPLITS:
        raise PartitionError(
            f"policy {policy.name} needs {len(policy.table.splits)} SM splits, and with {_SETTING} there are "
            f"{len(table.splits)}; at most {MAX_SPLITS} are made"
        )
    return table


def without_small(table: PartitionTable, environment: PluginEnvironment, waiting: int) -> PartitionTable:
    """The table without those of the device's own splits where so many of Marlin's blocks may find no room.

    It is the same where the operator gave the splits, and where it would not help: none is left, or the
    policy that it starts with has splits that are too small.
    """
    if environment.partitions is not None or not why_small(table, waiting):
        return table
    own = _sizes(default_table(table.rules))
    made = [
        make_table(table.rules, replace(environment, partitions=kept))
        for kept in with_room(waiting, own)
        if kept
    ]
    fitting = [one for one in made if not why_small(one, waiting)]
    return max(fitting, key=lambda one: len(one.splits), default=table)


def why_small(table: PartitionTable, waiting: int) -> str:
    """Why so many of Marlin's blocks may find no room on these splits; empty if they surely do."""
    return why_no_room(waiting, _sizes(table), table.rules.total_sms)


def _sizes(table: PartitionTable) -> tuple[Split, ...]:
    return tuple((split.prefill_sms, split.decode_sms) for split in table.splits)


def stream_groups(policy: AnyPolicy, made: PartitionTable) -> tuple[int, ...]:
    """The index of the streams with the sizes of each group of the policy's table.

    Raises: PartitionError with the setting that would have them made.
    """
    check_made(f"policy {policy.name}", policy.table.splits, made)
    found: list[int] = []
    for group in policy.table.groups:
        if not group.decode_sms:
            found.append(made.PREFILL_ONLY)
        elif not group.prefill_sms:
            found.append(made.decode_only)
        else:
            found.append(made.index_of(group.prefill_sms, group.decode_sms))
    return tuple(found)


def check_made(who: str, wanted: Iterable[Partition], made: PartitionTable) -> None:
    """Streams and graphs are made at start only.

    Raises: PartitionError with what to write into the settings before the next start: these splits and
    those in use, so that the next start can do both.
    """
    wanted = tuple(wanted)
    missing = [split for split in wanted if split not in made.splits]
    if not missing:
        return
    if len(wanted) > MAX_SPLITS:
        raise PartitionError(f"{who} needs {len(wanted)} SM splits; at most {MAX_SPLITS} are made")
    both = _with(made, wanted).splits
    advised = both if len(both) <= MAX_SPLITS else wanted
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    raise PartitionError(
        f"{who} needs SM split {write_splits(missing[:1])}{others}, made only when the engine starts: "
        f'set {_SETTING} to "{write_splits(advised)}" and start again'
    )


def write_splits(splits: Iterable[Partition]) -> str:
    """The text that the setting and `--partitions` read."""
    return ";".join(f"{split.prefill_sms},{split.decode_sms}" for split in splits)


def _with(table: PartitionTable, splits: Iterable[Partition]) -> PartitionTable:
    for split in splits:
        table = with_split(table, split.prefill_sms, split.decode_sms)
    return table
