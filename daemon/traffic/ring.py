"""A ring of recent traffic on disk: when who sent how much, and which prompts began alike. Never text.

Two files take turns; when one is full, the older is emptied. A file that cannot be written costs records,
which are counted, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from pathlib import Path

import msgspec
import structlog

from pdmuxd.controlplane.telemetry.telemetry import PromptNames
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.engine.link.messages import RequestRecord

PERIOD_S = 5.0
_UNWRITTEN = 20_000
"""Records that wait for the disk at most."""
_NAMES = ("traffic-a.jsonl", "traffic-b.jsonl")

log = structlog.get_logger("pdmuxd.daemon")


class CapturedRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One request that ended."""

    at_s: float
    """Unix time of its arrival."""
    tenant: str
    input_tokens: int
    output_tokens: int
    prompt_bytes: int = 0
    """Of the prompt that `prefixes` names; 0 where nothing is known of it."""
    prefixes: tuple[int, ...] = ()


_ENCODE, _DECODE = msgspec.json.Encoder(), msgspec.json.Decoder(CapturedRequest)


class TrafficRing:
    """Told in the event loop; `read` may be called in any thread."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._paths = tuple(folder / name for name in _NAMES)
        self._most_bytes = max_bytes // 2
        self._unwritten: deque[CapturedRequest] = deque(maxlen=_UNWRITTEN)
        self.lost = 0
        self._is_failing = False

    def on_ended(
        self, record: RequestRecord, arrived_s: float | None, prompt: PromptNames, now_s: float
    ) -> None:
        """A request ended in the engine; its arrival is None where the gateway knows nothing of it."""
        tokens = record.new_tokens + record.reused_tokens
        if not self._most_bytes or not tokens or not record.output_tokens:
            return
        self.lost += len(self._unwritten) == _UNWRITTEN
        at_s = now_s - (record.ttft_s or 0.0) if arrived_s is None else arrived_s
        self._unwritten.append(
            CapturedRequest(
                at_s=round(at_s, 3),
                tenant=record.tenant,
                input_tokens=tokens,
                output_tokens=record.output_tokens,
                prompt_bytes=prompt[0],
                prefixes=prompt[1],
            )
        )

    def write(self) -> None:
        """Append what was told since the last call."""
        lines: list[bytes] = []
        while self._unwritten:
            lines.append(_ENCODE.encode(self._unwritten.popleft()) + b"\n")
        if not lines:
            return
        try:
            self._append(lines)
            self._is_failing = False
        except OSError as error:
            self.lost += len(lines)
            if not self._is_failing:
                log.warning("recent traffic is not kept", path=str(self._paths[0]), reason=error.strerror)
            self._is_failing = True

    def read(self, *, since_s: float, limit: int) -> list[CapturedRequest]:
        """The newest `limit` that arrived since then, in the order of arrival; without what is damaged."""
        found: list[CapturedRequest] = list(self._unwritten)
        for path in self._paths:
            try:
                data = path.read_bytes()
            except OSError:
                continue
            for line in data.splitlines():
                try:
                    found.append(_DECODE.decode(line))
                except msgspec.MsgspecError:
                    continue
        fitting = sorted((one for one in found if one.at_s >= since_s), key=lambda one: one.at_s)
        return fitting[-limit:]

    def _append(self, lines: list[bytes]) -> None:
        newest = max(self._paths, key=_changed_s)
        for start in range(0, len(lines), 1000):
            data = _newest_within(lines[start : start + 1000], self._most_bytes)
            if _size(newest) + len(data) > self._most_bytes:
                newest = next(path for path in self._paths if path != newest)
                newest.unlink(missing_ok=True)
            newest.touch(mode=0o600)
            with newest.open("ab") as file:
                file.write(data)


def duties(ring: TrafficRing) -> tuple[Duty, ...]:
    """Write every PERIOD_S, and once more at the end."""
    write = partial(asyncio.to_thread, ring.write)
    return (Duty(name="writing recent traffic", work=write, period_s=PERIOD_S, at_end=write),)


def _newest_within(lines: list[bytes], most_bytes: int) -> bytes:
    left, first = most_bytes, len(lines)
    while first and len(lines[first - 1]) <= left:
        first -= 1
        left -= len(lines[first])
    return b"".join(lines[first:])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _changed_s(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0
