"""What rank 0 sees and decides at a safe point, and every rank carries out (invariant 6)."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.types import Decision
from pdmuxd.engine.link.measuring import Measure
from pdmuxd.engine.loop.requests import RefusalCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What rank 0 saw its device finish."""

    finish: bool
    """The prefill that ends next has passed its last layer."""
    dropped: tuple[int, ...]
    """Batch ids of abandoned prefills; one that is finished ends that way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """Rank 0's plan of one iteration; the same on every rank."""

    done: Done
    looked_up: tuple[str, ...] = ()
    """Waiting requests that were looked up in the prefix cache once more."""
    refused: tuple[tuple[str, RefusalCause], ...] = ()
    """Waiting requests that end with an error before anything is launched."""
    decision: Decision | None = None
    stream_group: int = 0
    """The decision's, among the streams that were made."""
    behind: bool = False
    """What the decision admits is launched behind the prefill that runs, whose layers all were launched."""
    sits_out: tuple[str, ...] = ()
    """Requests of the decode batch that are not in the step."""
    measure: Measure | None = None
    """A point that the daemon asks for; there is no decision then."""
