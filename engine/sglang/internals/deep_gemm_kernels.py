"""DeepGEMM's kernels for the partitions are compiled before the first of them is needed, in processes beside
each other.

A kernel takes nvcc some 5 s (16 cores, CUDA 13.0, 2026-11-29), and a model needs about 10 for each number of
SMs and 20 for more than 96. One after the other that is a quarter of an hour, and one that a request meets
stops all of decode for its 5 s. DeepGEMM keeps them on the disk, and a list beside them says what is there.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.internals.deep_gemm_sms import even, is_worth
from pdmuxd.engine.sglang.streams.gemm import Shape

CACHE = "DG_JIT_CACHE_DIR"
"""DeepGEMM's folder; SGLang sets the variable."""
_LIST = "pdmuxd-compiled.json"
_CHILD = "pdmuxd.engine.sglang.internals.deep_gemm_child"
ROWS = (16, 32, *range(64, 8193, 64))
"""Tiles have 16, 32, 64, 128 or 256 rows, so that numbers between these take the same kernels; above 8,192
rows no others were taken (five models' weights, worked out from `heuristics/sm90.hpp`)."""
_LIMIT_S = 480.0
"""The start goes on then; partitions whose kernels are missing are not told. It is three times what the
kernels of Qwen3-8B took with 16 processes on 16 cores (docs/measurements/h200.md, 2026-11-29)."""
_CONTEXT_BYTES = 700_000_000
"""Of GPU memory for a process, before its tensors. This is an estimate: a process that finds too little
fails, and its partition is not told."""
_FREE_SHARE = 0.8
"""Of the GPU memory that is free; the rest is left to the engine."""
_MOST_PROCESSES = 16
"""As many as were tried on a GPU."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one number of SMs needs."""

    sms: int
    rows: tuple[int, ...]
    shapes: tuple[Shape, ...]

    @property
    def bytes(self) -> int:
        """GPU memory for the largest product."""
        rows = self.rows[-1]
        return max(rows * inputs + outputs * inputs + 2 * rows * outputs for outputs, inputs in self.shapes)

    @property
    def key(self) -> str:
        """The name in the list."""
        shapes = " ".join(f"{outputs}x{inputs}" for outputs, inputs in self.shapes)
        return f"{self.sms} SMs, {self.rows[-1]} rows: {shapes}"


def works(groups: Iterable[StreamGroup], shapes: Iterable[Shape], total_sms: int) -> Iterator[Work]:
    """The work for each number of SMs that products are launched for, all of them first."""
    split = [group for group in groups if group.prefill_sms and group.decode_sms]
    counts = {even(sms) for group in split for sms in (group.prefill_sms, group.decode_sms)}
    for sms in (total_sms, *sorted(counts - {total_sms}, reverse=True)):
        rows = tuple(count for count in ROWS if sms == total_sms or is_worth(sms, count))
        yield Work(sms=sms, rows=rows, shapes=tuple(sorted(shapes)))


def compile_ahead(wanted: Sequence[Work], *, version: str, gpu: int, free_bytes: int) -> frozenset[int]:
    """Compile what an earlier start with this version of DeepGEMM has not; returns the numbers of SMs whose
    kernels are there. Raises: nothing."""
    folder = os.environ.get(CACHE)
    if not folder:
        return frozenset()
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with (Path(folder) / (_LIST + ".lock")).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # ranks have the same weights, and one compiles for all
            known = Path(folder) / _LIST
            done = _read(known, version)
            for work in _compile([work for work in wanted if work.key not in done], gpu, free_bytes):
                done.add(work.key)
                known.write_text(json.dumps({"version": version, "done": sorted(done)}))
    except OSError as error:
        _log.warning("pdmuxd: DeepGEMM's kernels for partitions cannot be kept: %s", error)
        return frozenset()
    return frozenset(work.sms for work in wanted if work.key in done)


def _compile(missing: Sequence[Work], gpu: int, free_bytes: int) -> Iterator[Work]:
    """What was compiled, as it ends."""
    if not missing:
        return
    each_bytes = _CONTEXT_BYTES + max(work.bytes for work in missing)
    room = int(_FREE_SHARE * free_bytes / each_bytes)
    if room < 1:
        _log.warning(
            "pdmuxd: DeepGEMM is not told of partitions: compiling its kernels takes %.1f GB of GPU memory, "
            "and %.1f are free",
            each_bytes / 1e9,
            free_bytes / 1e9,
        )
        return
    count = min(len(missing), _MOST_PROCESSES, room, os.cpu_count() or 1)
    _log.info("pdmuxd: compiling DeepGEMM's kernels for %d numbers of SMs, %d at once", len(missing), count)
    began_s = time.monotonic()
    with ThreadPoolExecutor(count) as processes:
        problems = processes.map(partial(_run, gpu, began_s + _LIMIT_S), missing)
        for work, problem in zip(missing, problems, strict=True):
            if problem:
                _log.warning("pdmuxd: DeepGEMM is not told of %d SMs: %s", work.sms, problem)
            else:
                yield work
    _log.info("pdmuxd: compiled DeepGEMM's kernels in %.0f s", time.monotonic() - began_s)


def _run(gpu: int, ends_s: float, work: Work) -> str:
    """Compile one number's kernels in a process; what went wrong, in words."""
    words = {"gpu": gpu, "sms": work.sms, "rows": work.rows, "shapes": work.shapes}
    left_s = ends_s - time.monotonic()
    try:
        ended = subprocess.run(  # noqa: S603 - this very program
            [sys.executable, "-m", _CHILD, json.dumps(words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=max(left_s, 0.0),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"compiling its kernels took more than {_LIMIT_S:.0f} s"
    except OSError as error:
        return f"no process for its kernels: {error}"
    if ended.returncode == 0:
        return ""
    said = ended.stderr.strip().splitlines() or ["it said nothing"]
    return f"compiling its kernels ended with {ended.returncode}: {said[-1]}"


def _read(known: Path, version: str) -> set[str]:
    """What was compiled by this version; nothing if that cannot be read."""
    try:
        document = json.loads(known.read_text())
        return set(document["done"]) if document["version"] == version else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()
