"""A trace in memory, whatever format it came in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pdmuxd.engine.core.errors import TraceError

MAX_TOKENS = 10_000_000
"""No model reads or writes more in one request; a larger number is a broken line."""


class TraceFormat(StrEnum):
    """The formats that are read without another package."""

    MOONCAKE = "mooncake"
    AZURE = "azure"
    NATIVE = "native"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request as recorded.

    `prefix_ids` name the prompt's leading blocks of `block_tokens` tokens: equal ids in equal
    positions are shared text. What they do not cover is this request's alone.
    """

    line: int
    arrival_s: float
    """Since the start of the trace."""
    tenant: str
    input_tokens: int
    output_tokens: int
    prefix_ids: tuple[int, ...] = ()
    block_tokens: int = 0
    """0 when there are no `prefix_ids`."""
    answer_ids: tuple[int, ...] = ()
    """Of the full blocks that the answer fills, behind those of the prompt: a later prompt repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in the order of their arrival, and what was done to them since the file was read."""

    path: Path
    format: str
    requests: tuple[TraceRequest, ...]
    block_tokens: int = 0
    """The same for all requests; 0 when none has `prefix_ids`."""
    tick_s: float = 0.0
    """The coarse tick that arrivals were spread over; 0 when they were left alone."""
    rate_scale: float = 1.0
    """Arrival times were divided by this."""
    dropped_too_long: int = 0
    clipped: int = 0

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival."""
        return self.requests[-1].arrival_s - self.requests[0].arrival_s


def line_error(path: Path, line: int, what: str) -> TraceError:
    """The error for a line that cannot be read; `what` says what is wrong and what is allowed."""
    return TraceError(f"{path}:{line}: {what}")
