"""How the emulated device differs from its own profile, as a real one does: bias, scatter, stalls, and errors
of one kind of work, or of large work of a kind, alone.

Without it fused steps take exactly what policies predict, and a policy that relies on that looks better than
it is. The same seed gives the same run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

STALL_S = 0.02
"""On one H200 (Llama-8B, SGLang 0.5.23) launches stood still for 10 to 24 ms when a kernel was loaded."""


class WorkKind(StrEnum):
    """What a piece of work is. Its size is counted in requests (decode) or new prompt tokens."""

    DECODE = "decode"
    FUSED = "fused"
    PREFILL = "prefill"
    """On its own stream, by layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindBias:
    """Work of one kind and at least one size takes this much longer."""

    kind: WorkKind
    bias_ratio: float
    from_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNoise:
    """What work takes beside what the profile says. Ratios are of 1."""

    bias_ratio: float = 0.0
    """All work takes this much longer; below 0 shorter."""
    scatter_ratio: float = 0.0
    """Sigma of the logarithm, of each piece of work by itself."""
    stall_ratio: float = 0.0
    """The share of works that stand still for `stall_s` as well."""
    stall_s: float = STALL_S
    stall_every_s: float = 0.0
    """As by a clock: what is first launched after each multiple of it stands still for `stall_s`, and so does
    the process behind the scheduler. 0: never. One slow host did every 1.5 to 1.6 s, another every 1.65 to
    1.95 s, for 20 to 45 ms mostly and in all processes at once (docs/measurements/h100.md, 2026-11-27)."""
    seed: int = 0
    by_kind: tuple[KindBias, ...] = ()
    """Beside `bias_ratio`; of several that fit a piece of work all count."""

    def by_kind_ratio(self, kind: WorkKind, size: int) -> float:
        """How many times as long work of that kind and size takes, beside what all work does."""
        fitting = (one for one in self.by_kind if one.kind is kind and size >= one.from_size)
        return math.prod(1.0 + one.bias_ratio for one in fitting)

    def lasting(self) -> Callable[[float], float]:
        """Turn seconds by the profile into seconds on the device; one call for each piece of work, in
        order."""
        source = random.Random(self.seed)  # noqa: S311 - scatter, not a secret
        factor = 1.0 + self.bias_ratio

        def lasting(solo_s: float) -> float:
            lasts_s = solo_s * factor * math.exp(source.gauss(0.0, self.scatter_ratio))
            return lasts_s + self.stall_s if source.random() < self.stall_ratio else lasts_s

        return lasting

    def stalling(self) -> Callable[[float], float]:
        """How long what begins at an instant stands still as by the clock; one call for each, in order."""
        every_s, ticks = self.stall_every_s, 0

        def stalled_s(at_s: float) -> float:
            nonlocal ticks
            passed = int(at_s / every_s) if every_s else 0
            if passed <= ticks:
                return 0.0
            ticks = passed
            return self.stall_s

        return stalled_s


NO_NOISE = DeviceNoise()
