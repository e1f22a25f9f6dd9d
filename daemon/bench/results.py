"""One measurement, its name in the results, and what results there are already."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pdmuxd.daemon.bench.arms import ENGINE, Arm
from pdmuxd.daemon.bench.load.workload import Cell

_ENGINE_FOLDERS = ("core", "loop", "sglang")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One arm on one cell."""

    model: str
    arm: Arm
    cell: Cell
    seed: int
    tbt_ms: float | None
    """None for an arm that knows no target."""
    judged_ms: tuple[float, ...]
    """Targets that its result is judged against."""
    tp_size: int = 1
    is_anchor: bool = False
    """Measured again in every session, to see whether sessions may be compared."""

    @property
    def key(self) -> list[Any]:
        model = self.model if self.tp_size == 1 else f"{self.model}/tp{self.tp_size}"
        return [model, self.arm.name, str(self.cell), self.seed, self.tbt_ms]

    @property
    def server(self) -> tuple[str, int, str]:
        """Runs of one server follow each other without a restart."""
        return self.model, self.tp_size, self.arm.server

    @property
    def build(self) -> str | None:
        """The engine's build, where it is ours: another build's result is of another engine."""
        return build() if self.arm.policy is not None else None

    @classmethod
    def each(cls, *, arm: Arm, tbt_ms: Sequence[float], **shared: Any) -> Iterator[Run]:
        """One per target, or one for all of them."""
        if arm.knows_targets:
            for target_ms in tbt_ms:
                yield cls(arm=arm, tbt_ms=target_ms, judged_ms=(target_ms,), **shared)
        else:
            yield cls(arm=arm, tbt_ms=None, judged_ms=tuple(tbt_ms), **shared)

    @property
    def name(self) -> str:
        return name_of(self.key, self.build)

    def among(self, cells: frozenset[tuple[str, str, str]]) -> bool:
        """Whether these (model with its ranks, cell, arm) hold its own."""
        return (self.key[0], str(self.cell), self.arm.name) in cells

    def is_in(self, done: set[str]) -> bool:
        """Whether `done_in` found it."""
        return self.name in done


@cache
def build() -> str:
    """Eight digits of what the engine's source is now."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in _ENGINE_FOLDERS for path in (ENGINE / folder).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def name_of(key: list[Any], of_build: str | None) -> str:
    """A run's key and build as one hashable text."""
    return json.dumps([key, of_build])


def append_result(path: Path, result: dict[str, Any]) -> None:
    """Keep a result, in one piece: several processes may append to one file."""
    data = json.dumps(result, separators=(",", ":")).encode() + b"\n"
    with path.open("a+b", buffering=0) as file:
        # What a full disk or a killed process cut off must not swallow the next result.
        if file.tell():
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data
        written = file.write(data)
    if written < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """All results of a file; one that was cut off with the process that wrote it is left out."""
    if path.exists():
        with path.open() as file:
            for text in file:
                with contextlib.suppress(json.JSONDecodeError):
                    yield json.loads(text)


def read_runs(path: Path) -> Iterator[dict[str, Any]]:
    """Results of runs; other scripts write theirs to the same file."""
    return (result for result in read_results(path) if "key" in result)


def done_in(path: Path) -> set[str]:
    """Names of the runs whose results a file holds."""
    return {name_of(result["key"], result.get("build")) for result in read_runs(path)}


def counted(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each run once: of an engine of ours the last build, of one build the first measurement."""
    found = list(results)
    last_build = {(one["key"][0], one["key"][1]): one.get("build") for one in found}
    once: dict[str, dict[str, Any]] = {}
    for one in found:
        if one.get("build") == last_build[one["key"][0], one["key"][1]]:
            once.setdefault(str(one["key"]), one)
    return list(once.values())
