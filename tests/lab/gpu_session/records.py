"""What became of each step, kept in the session's folder: what is done is not done again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pdmuxd.daemon.bench.results import append_result, read_results


class Ended(StrEnum):
    """How a step can end."""

    DONE = "done"
    MISSED = "done, a target missed"
    FAILED = "failed"
    """Another exit code; what it found until then is kept."""
    KILLED = "took too long"
    LACKS = "not begun: something is missing"
    NO_TIME = "not begun: no time left"
    STOPPED = "stopped with the session"


MEASURED = frozenset({Ended.DONE, Ended.MISSED})
"""Nothing is left to be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One try of a step."""

    step: str
    ended: Ended
    took_s: float
    said: str
    """Its last line, or what is missing."""


class Records:
    """The records of a folder, oldest first."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "steps.jsonl"

    def all(self) -> list[Record]:
        """Of this session and of those before it in the same folder."""
        return [Record(**(one | {"ended": Ended(one["ended"])})) for one in read_results(self._path)]

    def add(self, record: Record) -> None:
        """Keep it."""
        append_result(self._path, dataclasses.asdict(record))

    def last(self) -> dict[str, Record]:
        """By step, the newest."""
        return {record.step: record for record in self.all()}

    def done(self) -> set[str]:
        """Steps that were done once."""
        return {record.step for record in self.all() if record.ended in MEASURED}
