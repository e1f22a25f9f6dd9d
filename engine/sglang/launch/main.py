"""The engine's process: check what can be checked, then become SGLang's server.

Exit codes: 0 after a stop that was asked for, 1 when the engine failed, 2 for what a person must change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from pdmuxd.engine.core.errors import EngineError, PdmuxdError
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.registry import parse_policy
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.launch import parent
from pdmuxd.engine.sglang.launch.arguments import KEY_VARIABLE, Arguments, parse
from pdmuxd.engine.sglang.launch.checks import check_environment, check_listening, check_model, check_tp_size
from pdmuxd.engine.sglang.launch.fetching import check_all_adapters
from pdmuxd.engine.sglang.launch.flags import check_extra
from pdmuxd.engine.sglang.launch.groups import find_device
from pdmuxd.engine.sglang.launch.memory import FLAG, choose_fraction, weights_of
from pdmuxd.engine.sglang.launch.mode import marlin_waiting, mode_of
from pdmuxd.engine.sglang.partition_tables import make_table, why_small, without_small, write_splits


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; the exit code."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    key = os.environ.get(KEY_VARIABLE) or None
    try:
        _check(arguments, key)
        arguments = replace(arguments, extra=check_all_adapters(arguments.model, arguments.extra))
        environment = PluginEnvironment(
            policy=arguments.policy, link=arguments.link, partitions=arguments.partitions
        )
        device = find_device(on_cpu=_on_cpu(arguments.extra))
        check_tp_size(arguments.model, arguments.tp_size, gpus=device.gpus)
        made = make_table(device.rules, environment)
        waiting = marlin_waiting(
            arguments.model, arguments.extra, tp_size=arguments.tp_size, sms=device.rules.total_sms
        )
        table = without_small(made, environment, waiting)
        fraction = choose_fraction(
            weights_of(arguments.model, arguments.extra, tp_size=arguments.tp_size),
            device.memory_bytes,
            arguments.extra,
            tp_size=arguments.tp_size,
        )
        if fraction is not None:
            sys.stderr.write(f"pdmuxd: {FLAG} {fraction:g}, for the sake of the model's weights\n")
        mode = mode_of(arguments.model, arguments.extra, tp_size=arguments.tp_size)
        if why := why_small(table, waiting):
            mode = f"fused steps: {why}"
        if mode is not None:
            sys.stderr.write(f"pdmuxd: the model is expected to be served {mode}\n")
        sys.stderr.write(f"pdmuxd: {in_words(table, made, waiting)}\n")
        if arguments.parent_pid is not None:
            parent.watch(arguments.parent_pid, arguments.link)
        from pdmuxd.engine.sglang.launch.server import serve  # many seconds, which a refusal saves

        serve(arguments, table, key, fraction)
    except EngineError as error:
        return _fail(error, code=1)
    except PdmuxdError as error:
        return _fail(error, code=2)
    return 0


def in_words(table: PartitionTable, made: PartitionTable, waiting: int) -> str:
    """The partition groups, and which of the device's own are left out for so many of Marlin's blocks."""
    groups = f"{len(table.groups)} partition groups: {write_splits(table.groups)}"
    left_out = [split for split in made.splits if split not in table.splits]
    if not left_out:
        return groups
    why = f"too small for {waiting} of Marlin's blocks, which may wait for each other"
    return f"{groups}, without {write_splits(left_out)}: {why}"


def _check(arguments: Arguments, key: str | None) -> None:
    check_environment()
    check_extra(arguments.extra)
    parse_policy(arguments.policy)
    check_model(arguments.model)
    check_listening(arguments.host, arguments.port, key=key)


def _on_cpu(extra: Sequence[str]) -> bool:
    return "--device=cpu" in extra or ("--device", "cpu") in pairwise(extra)


def _fail(error: PdmuxdError, *, code: int) -> int:
    sys.stderr.write(f"error: {error}\n")
    return code
