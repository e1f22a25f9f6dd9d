"""Starting a server while another is still measured: its imports overlap, its use of the GPU does not.

Half of a start is Python's imports, on one core each in two processes. A server that is started ahead does
them beside the last run of the one before it, and its scheduler waits at a gate; the gate opens when that
server is gone and its memory is free. So the last run of a server shares the host with the next one's
imports: `--no-ahead` measures without.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.daemon.bench.servers.arms import ENGINE

GATE = ENGINE / "sglang" / "bench" / "gate"
FREE_BYTES = 8 * 2**30
"""Less than this in use: a server that starts has contexts, one that served has a KV pool."""
_LOOK_S, _LOOKS = 0.3, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A file that schedulers wait for."""

    path: Path

    def environment(self, environment: dict[str, str], tp_size: int) -> dict[str, str]:
        """A server's, so that it waits here."""
        own = {"PDMUXD_GATE": str(self.path), "PDMUXD_GATE_RANKS": str(tp_size)}
        return by_the_gate(environment) | own

    async def open(self) -> None:
        """Once the GPU's memory is free, or that takes too long."""
        for _ in range(_LOOKS):
            if used_bytes() < FREE_BYTES:
                break
            await asyncio.sleep(_LOOK_S)
        self.path.touch()


def by_the_gate(environment: Mapping[str, str]) -> dict[str, str]:
    """A server's environment whose Pythons run what is in GATE at their start."""
    paths = [
        path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(GATE))
    ]
    return dict(environment) | {"PYTHONPATH": os.pathsep.join((str(GATE), *paths))}


def used_bytes(visible: str | None = None) -> int:
    """Of the GPU that uses most, of the `visible` ones or those that this process may use; 0 where there is
    no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return 0
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if visible := visible or os.environ.get("CUDA_VISIBLE_DEVICES"):
        command += ["-i", visible]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    return max((int(word) for word in said.split() if word.isdigit()), default=0) * 2**20
