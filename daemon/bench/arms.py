"""What is compared: ways to run one engine, each a command line.

stock            SGLang as it comes: chunks of 8,192 tokens, overlap scheduling
chunk-N          its mixed chunked prefill with a budget of N tokens
pdmux            its own --enable-pdmux
ours:POLICY      pdmuxd's engine under a policy of the core: auto, muxwise, static:96,36, chunked:512 ...
emulator:POLICY  pdmuxd's emulated engine, to try all of it without SGLang
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pdmuxd.engine.core
from pdmuxd.daemon.bench.models import ServedModel
from pdmuxd.engine.core.errors import InvalidValueError

HOST = "127.0.0.1"
ENGINE = Path(pdmuxd.engine.core.__file__).parents[1]
DECODE_GRAPHS = (1, 2, 4, 8, 12, *range(16, 129, 8), *range(160, 257, 32))
"""Sizes of decode batches with a graph, for every arm; ours does not let more decode at a time."""
GPU_FLAGS = (
    *("--sampling-backend", "pytorch", "--grammar-backend", "none"),
    *("--cuda-graph-bs-decode", *map(str, DECODE_GRAPHS), "--incremental-streaming-output"),
)
CPU_FLAGS = (
    *("--device", "cpu", "--attention-backend", "torch_native"),
    *("--mem-fraction-static", "0.1", "--max-total-tokens", "65536", "--incremental-streaming-output"),
)
"""To try the scripts on a machine without a GPU, with the `tiny` shape."""
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""NVLink multicast is the whole host's: where others share it, its GPUs can be put out of service. SGLang's
all-reduce would use it where PyTorch's symmetric memory has it."""
_BLIND = ("static:", "chunked:", "prefill-first", "upstream")
"""Policies that look at no target."""
DEFAULT_SPLITS = ("124,8", "116,16", "108,24", "100,32", "92,40", "84,48", "68,64", "52,80")
"""Of an H200, made at every start (`engine/sglang/partition_tables.py`)."""
OTHER_SPLITS = "duet"
"""The policy that the server of the other splits starts with: its splits are those of `drift`, too, and of
the fixed splits that the tables have."""
SYNTAX = "stock, chunk-N, pdmux, ours:POLICY and emulator:POLICY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to run the engine."""

    name: str

    def __post_init__(self) -> None:
        kind = self.name.partition(":")[0]
        if kind not in {"stock", "pdmux", "ours", "emulator"} and not self._chunk().isdecimal():
            raise InvalidValueError("arms", f"{self.name!r} is no arm; allowed are {SYNTAX}")

    @property
    def policy(self) -> str | None:
        """The policy that the link sets; None where there is no link."""
        kind, _, policy = self.name.partition(":")
        return policy or "auto" if kind in {"ours", "emulator"} else None

    @property
    def knows_targets(self) -> bool:
        """Whether it behaves otherwise under another TBT target; if not, one run is judged against each."""
        return self.policy is not None and not self.policy.startswith(_BLIND)

    @property
    def server(self) -> str:
        """Arms of one server need no restart between them: the policy is changed over the link. Splits are
        made at the start alone, so that policies with other splits than the default ones have a server."""
        kind = self.name.partition(":")[0]
        return f"{kind}-{OTHER_SPLITS}" if kind == "ours" and self._has_other_splits() else kind

    @property
    def is_ours(self) -> bool:
        """Whether SGLang runs with the plugin."""
        return self.server.partition("-")[0] == "ours"

    def _has_other_splits(self) -> bool:
        name, _, parameter = str(self.policy).rpartition("/")[2].partition(":")
        return name in ("duet", "drift") or (name == "static" and parameter not in DEFAULT_SPLITS)

    def _chunk(self) -> str:
        return self.name.removeprefix("chunk-") if self.name.startswith("chunk-") else ""

    def command(
        self,
        *,
        model: ServedModel,
        port: int,
        link: str | None,
        tp_size: int,
        cpu: bool,
        extra: Sequence[str],
        python: Path | None = None,
        kernels_file: Path | None = None,
        partitions: str = "",
    ) -> list[str]:
        """The server's command line; `python` has SGLang, if it is not this one, and which kernels are
        fastest is kept in `kernels_file` from one start to the next. `partitions` are in place of the
        device's."""
        emulated = self.server == "emulator"
        interpreter = [sys.executable if emulated or python is None else str(python), "-P", "-m"]
        where = ["--host", HOST, "--port", str(port)]
        if emulated:
            own = ["--link", str(link), "--profile", model.emulator_profile]
            return [*interpreter, "pdmuxd.engine.emulator.server", *where, *own]
        flags = [*model.flags, *(CPU_FLAGS if cpu else GPU_FLAGS), *extra]
        if self.is_ours:
            policy = self.policy if self.server == "ours" else OTHER_SPLITS
            own = ["--link", str(link), "--policy", str(policy), "--model", str(model.folder)]
            own += ["--tp-size", str(tp_size), "--served-model", model.name]
            own += [] if kernels_file is None else ["--kernels-file", str(kernels_file)]
            own += ["--partitions", partitions] if partitions else []
            return [*interpreter, "pdmuxd.engine.sglang", *where, *own, "--", *flags]
        if self._chunk():
            flags += ["--chunked-prefill-size", self._chunk(), "--enable-mixed-chunk"]
        elif self.server == "pdmux":
            flags += ["--enable-pdmux", "--chunked-prefill-size", "-1", "--disable-overlap-schedule"]
        model_flags = ["--model-path", str(model.folder), "--tp-size", str(tp_size)]
        return [*interpreter, "sglang.launch_server", *where, *model_flags, *flags]

    def environment(self, *, cpu: bool, tp_size: int = 1) -> dict[str, str]:
        """The server's environment; stock arms run without any plugin."""
        own = {"PYTHONUNBUFFERED": "1"} | (NO_MULTICAST if tp_size > 1 else {})
        if self.policy is None:
            own["SGLANG_PLUGINS"] = "none"
        if cpu:
            own |= {"OMP_NUM_THREADS": "1"} | (_cpu_ranks(tp_size) if tp_size > 1 else {})
        return os.environ | own


def _cpu_ranks(tp_size: int) -> dict[str, str]:
    """SGLang wants each rank's core named, and would use the NCCL that PyTorch for CUDA brings along."""
    cores = os.cpu_count() or 1
    binding = "|".join(str(rank % cores) for rank in range(tp_size))
    return {"SGLANG_CPU_OMP_THREADS_BIND": binding, "SGLANG_NCCL_SO_PATH": "/there/is/none"}


def split_names(names: str) -> list[str]:
    """A comma-separated list; static splits keep their comma."""
    found: list[str] = []
    for word in names.split(","):
        if word.isdigit() and found:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found
