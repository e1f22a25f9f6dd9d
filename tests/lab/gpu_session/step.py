"""One step of a session: a measurement with its arguments, what it needs, and the time it may take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """What a step fails without; `checks.py` looks for each in seconds."""

    CLIENT = "the client's packages"
    FITS = "the profiler's packages"
    DAEMON = "the daemon's packages"
    SGLANG = "SGLang with the plugin"
    GPU = "a free GPU"
    TRACES = "the traces"
    PREDICTORS = "the profiles that are given"


SERVED = (Need.CLIENT, Need.SGLANG, Need.GPU)
"""Of every step that starts a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is run by itself; its results are kept as they come."""

    name: str
    plan: str
    """Its name among the experiments."""
    words: tuple[str, ...]
    """Its arguments, without those that name files."""
    expected_s: float
    needs: tuple[Need, ...]
    after: tuple[str, ...] = ()
    """It waits until these are over, if the session does them, however they end: their profiles are used."""
    fills_s: bool = False
    """It takes what is left, keeps to a budget by itself, and goes on in the next session; `expected_s` is
    the least that is worth its start."""
    most_s: float = math.inf
    """Of a step that fills the time: it takes no more than this, and is over if it was all done."""
    told_budget: bool = False
    """Whether it is told how much time is left, and makes do with less."""
    records: bool = False
    """Whether it keeps every step of the engine."""
    keeps: str = "results"
    """`results`: appends to the file of all results and predicts with profiles; `profile`: writes one;
    `rows`: writes files of its own, and starts no server."""

    slack_s: float = 45.0
    """By which a first start on a machine, its disk cold, may exceed what is expected."""

    @property
    def takes_s(self) -> float:
        """What is planned with; of a step that fills all that is left, the least."""
        return self.most_s if self.fills_s and math.isfinite(self.most_s) else self.expected_s

    @property
    def limit_s(self) -> float:
        """When it counts as hung."""
        return 1.3 * self.takes_s + self.slack_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Steps that one GPU, or all of them together, do one after the other."""

    gpus: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"gpu {'+'.join(map(str, self.gpus))}"
