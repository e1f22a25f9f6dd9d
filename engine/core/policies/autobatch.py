"""What the stages of `auto` hand on: which mechanisms are on, and who is prefilled, how, and of what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from pdmuxd.engine.core.policies.base import Plan
from pdmuxd.engine.core.policies.layerwise import Work
from pdmuxd.engine.core.types import Observation, PrefillMode, WaitingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOptions:
    """Mechanisms that can be ablated."""

    preemption: bool = True
    nesting: bool = True
    """Off: what has overtaken a prefill is not overtaken itself."""
    guard: bool = True
    look_ahead: bool = True
    split: bool = True
    """Off: fused steps alone, within the target."""
    fuse: bool = True
    """Off: layers alone, where the memory for a whole batch suffices."""
    classes: bool = True
    """Off: everybody decodes in every step, whatever its TBT target."""
    by_slack: bool = True


class How(Enum):
    """What becomes of a batch."""

    NEXT = auto()
    """Nothing is under way: it is the next prefill."""
    GO_ON = auto()
    """It is empty: what runs by layers goes on."""
    OVERTAKE = auto()
    """What runs by layers is set aside for it."""
    DRAIN = auto()
    """The same, once the layers in flight are done."""
    ALONG = auto()
    """It has what the prompt in chunks leaves of a step."""
    FIRST = auto()
    """The prompt in chunks has what it leaves."""
    INSTEAD = auto()
    """The prompt in chunks sits the step out."""
    FIXED = auto()
    """Predictions are wrong: in the order of arrival, in steps of a fixed size."""


class Batch(NamedTuple):
    """The requests that are prefilled, how, and of what; the fused step if it decided which."""

    requests: tuple[WaitingRequest, ...]
    how: How
    work: Work | None = None
    step: Plan | None = None


def is_by_layers(obs: Observation) -> bool:
    """Whether a prefill is under way that cannot go on in chunks."""
    running = obs.prefill
    return obs.preempted is not None or (running is not None and running.mode is PrefillMode.LAYERWISE)
