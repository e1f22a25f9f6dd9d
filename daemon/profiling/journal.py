"""What a campaign has measured so far: a file that grows by a line a point and outlives a killed process."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from pdmuxd.daemon.process.state_file import replace_file
from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.measurement import Sample

FORMAT = "pdmuxd-campaign/3"
_SYNC_EVERY_S = 5.0
"""Of the campaign's time: how much of it a power failure may cost. A killed process costs nothing."""


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    began_at: str


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    elapsed_s: float
    """Of the campaign's budget, this point included."""
    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What a campaign that did not come to its end has left."""

    began_at: str
    """ISO 8601, UTC; empty if there was none."""
    samples: tuple[Sample, ...] = ()
    spent_s: float = 0.0
    """Of its budget."""


NOTHING = Earlier(began_at="")


def journal_path(folder: Path, hello: Hello) -> Path:
    """One file for each engine, model, number of GPUs and table of SMs: nothing else may go on."""
    told_apart = (
        *(hello.engine, hello.engine_version, hello.sglang_version, hello.driver, hello.profile),
        *(hello.device, hello.total_sms, hello.partitions, hello.model_hash),
        *(hello.captured_decode_bs, hello.captured_fused_tokens),
        *(hello.max_decode_bs, hello.tensor_parallel.gpus),
    )
    mark = hashlib.sha256(msgspec.json.encode(told_apart)).hexdigest()[:12]
    return folder / f"campaign-{mark}.jsonl"


def read_journal(path: Path) -> Earlier:
    """All whole lines up to the first that is not one: a process may be killed while it writes.

    Raises: ProfileError if the file is there and cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return NOTHING
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}; --fresh measures anew") from error
    samples, spent_s = [], 0.0
    try:
        header = msgspec.json.decode(lines[0], type=_Header) if lines else None
        if header is None or header.format != FORMAT:
            return NOTHING
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return NOTHING
    for text in lines[1:]:
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (msgspec.MsgspecError, UnicodeDecodeError, ProfileError):
            break
        samples.append(line.sample)
        spent_s = line.elapsed_s
    return Earlier(began_at=header.began_at, samples=tuple(samples), spent_s=spent_s)


@dataclass(slots=True, kw_only=True)
class Journal:
    """Writes a campaign's points as they come, after what an earlier one left."""

    path: Path
    earlier: Earlier
    now: str
    """ISO 8601, UTC."""
    _descriptor: int = field(default=-1, init=False)
    _synced_s: float = field(default=0.0, init=False)

    def __enter__(self) -> Self:
        """Write what is known anew, so that a torn line is gone. Raises: ProfileError."""
        began_at = self.earlier.began_at or self.now
        lines: list[_Header | _Line] = [_Header(format=FORMAT, began_at=began_at)]
        spent_s = self.earlier.spent_s
        lines += [_Line(elapsed_s=spent_s, sample=sample) for sample in self.earlier.samples]
        try:
            replace_file(self.path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise ProfileError(f"{self.path}: cannot be written: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def add(self, sample: Sample, elapsed_s: float) -> None:
        """Keep one more point. Raises: ProfileError if it cannot be written."""
        try:
            os.write(self._descriptor, msgspec.json.encode(_Line(elapsed_s=elapsed_s, sample=sample)) + b"\n")
            if elapsed_s - self._synced_s > _SYNC_EVERY_S:
                os.fdatasync(self._descriptor)
                self._synced_s = elapsed_s
        except OSError as error:
            raise ProfileError(f"{self.path}: cannot be written: {error.strerror}") from error

    def remove(self) -> None:
        """The campaign came to its end, and its profile is kept elsewhere."""
        self.path.unlink(missing_ok=True)
