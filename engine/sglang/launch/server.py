"""Starts a SGLang server from our arguments."""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.estimates.batch_size_correction import SIZES
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.link.procfs import started_s
from pdmuxd.engine.sglang.api.symbols import launcher
from pdmuxd.engine.sglang.environment import (
    KERNELS,
    KERNELS_FILE,
    LAUNCHED,
    LINK,
    PARTITIONS,
    POLICY,
    WHOLE_GRAPHS,
)
from pdmuxd.engine.sglang.launch.arguments import KEY_VARIABLE, Arguments
from pdmuxd.engine.sglang.launch.checks import PLUGIN
from pdmuxd.engine.sglang.launch.flags import CHECKED, adapters, check_parsed
from pdmuxd.engine.sglang.launch.groups import write_groups_file
from pdmuxd.engine.sglang.launch.memory import FLAG
from pdmuxd.engine.sglang.partition_tables import write_splits

_GROUPS_FILE = "sm-groups.yaml"
FUSED_TOKENS = (2, 4, 8, 16, *(tokens for tokens in SIZES if tokens != 448))
"""Sizes of fused batches, decoding requests included, for which SGLang captures graphs: up to what meets a
TBT target of 100 ms, and close enough together for padding to cost little; a batch that a graph would more
than double is not replayed. Launched layer by layer, 32 layers take 18 to 40 ms of the host's time whatever a
batch's size (one H200, SGLang 0.5.23, 2026-11-21). Not 448: Llama-8B's products of 448 rows take longer than
those of 512 (steps of 22.1 and 17.9 ms while serving, 2026-11-22)."""
_FUSED_GRAPHS = ("--cuda-graph-bs-prefill", *map(str, FUSED_TOKENS))
_NCCL_ORDER = "NCCL_LAUNCH_ORDER_IMPLICIT"
"""Prefill and decode sum over two communicators. NCCL (2.26 and newer) then launches their kernels in the
order of the host's calls on every GPU, so that none waits in the one and another in the other (its guide,
"Using multiple NCCL communicators concurrently"). Not measured here."""
_DEEP_GEMM = "SGLANG_JIT_DEEPGEMM_FAST_WARMUP"
"""With chunks of -1 SGLang would launch each of DeepGEMM's products for every number of rows up to 65,536 at
each start (`compile_utils.py` of 0.5.23; read, not timed). With this it launches 3,072 numbers up to 16,384,
and the engine's warm-up asks about others (docs/decisions/0099-deepgemm-and-its-sms.md)."""
_USERS_GRAPHS = {
    *("--cuda-graph-config", "--cuda-graph-bs-prefill", "--cuda-graph-max-bs-prefill"),
    *("--cuda-graph-backend-prefill", "--disable-prefill-cuda-graph", "--disable-cuda-graph"),
}
"""Whoever gives one of these decides about graphs of prompt tokens."""


def plugin_environment(arguments: Arguments, table: PartitionTable) -> dict[str, str]:
    """What the plugin reads in every scheduler process; all of them inherit this process's environment."""
    launched_s = started_s(os.getpid())
    found = {
        LAUNCHED: "" if launched_s is None else f"{launched_s:.2f}",
        POLICY: arguments.policy,
        PARTITIONS: write_splits(table.splits),
        LINK: arguments.link or "",
        WHOLE_GRAPHS: "" if _has_graphs(arguments) else "1",
        KERNELS: "1" if arguments.partition_kernels else "0",
        KERNELS_FILE: arguments.kernels_file or "",
        _DEEP_GEMM: os.environ.get(_DEEP_GEMM, "1"),
    }
    if arguments.tp_size > 1:
        found[_NCCL_ORDER] = os.environ.get(_NCCL_ORDER, "1")
    # SGLang would load every plugin that is installed, also those that packages it needs bring along.
    others = [name for name in os.environ.get("SGLANG_PLUGINS", "").split(",") if name]
    found["SGLANG_PLUGINS"] = ",".join(dict.fromkeys((*others, PLUGIN)))
    return found


def server_flags(
    arguments: Arguments, *, groups: int, groups_file: Path, fraction: float | None = None
) -> list[str]:
    """SGLang's command line; the key is not on it, because anyone may read a command line.

    `fraction` of the memory is for weights and KV; None leaves it to SGLang.
    """
    return [
        *("--model-path", arguments.model, "--served-model-name", arguments.served_model),
        *("--host", arguments.host, "--port", str(arguments.port), "--tp-size", str(arguments.tp_size)),
        *("--enable-pdmux", "--pdmux-config-path", str(groups_file), "--sm-group-num", str(groups)),
        *("--chunked-prefill-size", "-1", "--disable-overlap-schedule"),
        *(() if _has_graphs(arguments) else _FUSED_GRAPHS),
        *(() if fraction is None else (FLAG, str(fraction))),
        *_slots_of_adapters(arguments),
        *arguments.extra,
    ]


def _slots_of_adapters(arguments: Arguments) -> tuple[str, ...]:
    """A slot for each adapter and one for none: no request waits until another's has left the GPU."""
    found = adapters(arguments.extra)
    return ("--max-loras-per-batch", str(len(found) + 1)) if found else ()


def _has_graphs(arguments: Arguments) -> bool:
    return bool(_USERS_GRAPHS & {word.partition("=")[0] for word in arguments.extra})


def serve(arguments: Arguments, table: PartitionTable, key: str | None, fraction: float | None) -> None:
    """Run the server until it ends. Raises: SettingsError for what SGLang or multiplexing refuse."""
    with ExitStack() as stack:
        folder = _private_folder(arguments.link, stack)
        groups = write_groups_file(folder / _GROUPS_FILE, table)
        os.environ.update(plugin_environment(arguments, table))
        # Not for the children, which have no use for it.
        os.environ.pop(KEY_VARIABLE, None)
        server_args = _parse(
            server_flags(arguments, groups=groups, groups_file=folder / _GROUPS_FILE, fraction=fraction)
        )
        server_args.api_key = key
        if key is not None:
            # SGLang logs all of its arguments.
            logging.getLogger("sglang.srt.entrypoints.engine").addFilter(partial(_hide, key))
        _run(server_args)


def _hide(secret: str, record: logging.LogRecord) -> bool:
    record.msg = str(record.msg).replace(secret, "***")
    return True


def _private_folder(link: str | None, stack: ExitStack) -> Path:
    """Where the link's socket is, which is the daemon's private folder; else one of our own."""
    if link is not None:
        return Path(link.removeprefix("ipc://")).parent
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdmuxd-")))


def _parse(flags: list[str]) -> Any:
    launcher().load_plugins()
    try:
        server_args = launcher().prepare_server_args(flags)
    except (AssertionError, ValueError) as error:
        raise SettingsError(f"SGLang refuses its arguments: {_one_line(error)}") from error
    check_parsed({field: getattr(server_args, field) for field in CHECKED})
    return server_args


def _run(server_args: Any) -> None:
    try:
        launcher().run_server(server_args)
    finally:
        launcher().kill_process_tree(os.getpid(), include_parent=False)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
