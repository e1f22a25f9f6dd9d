"""The contention guard: the worst slowdown of decode beside prefill, per cell of a grid.

Source: MuxWise section 3.3.2. The grid has five axes: new and reused tokens of the prefill, batch size and
reused tokens of the decode, and the partition, here by its decode SMs, so that a cell means the same under
every policy's table. Tokens are cut at powers of four from 2K.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.running_mean import blended, weight_after
from pdmuxd.engine.core.types import DecodeShape, PrefillShape

GuardCell = tuple[int, int, int, int, int]
"""(decode SMs, prefill new, prefill reused, decode batch, decode reused); all but the first a grid index."""

UNMEASURED_RATIO = 1.3
"""Assumed where no pair was measured: the largest slowdown of decode beside prefill that MuxWise 3.3.2 saw on
H100."""

MAX_RATIO = 4.0
"""A slowdown above this is a stall (a throttled or shared GPU), not contention: it is cut here."""

KNOWN_STEPS = 10
"""After so many steps on as many SMs what is assumed of them is known; a step beyond raises its own cell."""
FIRST_DEVIATION = 0.1
"""Mean deviation of the slowdowns on as many SMs after one step, as a share of it."""
DEVIATIONS = 3.0
"""Mean deviations that few steps are beyond: 2.4 sigma of a normal distribution."""
LEAST_CHANGE = 0.01
"""Of `device_ratio`: less is scatter, and a new guard for each step would cost more than it is worth."""


def token_index(tokens: int) -> int:
    """Grid index of a token count: 0 below 2K, then one more for each factor of four."""
    return max(0, (tokens.bit_length() - 10) // 2)


def guard_cell(decode_sms: int, prefill: PrefillShape, decode: DecodeShape) -> GuardCell:
    """The cell that a pair of iterations falls into."""
    return (
        decode_sms,
        token_index(prefill.new_tokens),
        token_index(prefill.reused_tokens),
        decode.bs.bit_length(),
        token_index(decode.reused_tokens),
    )


@dataclass(frozen=True, slots=True)
class AssumedRatio:
    """The slowdown on some SMs where nothing was measured, from steps that were seen there: a level and a
    scatter, as for a retransmission timeout (Jacobson, SIGCOMM 1988)."""

    mean: float
    deviation: float
    steps: int = 1

    @classmethod
    def of(cls, ratio: float) -> AssumedRatio:
        """The cell after one step."""
        return cls(ratio, FIRST_DEVIATION * ratio)

    @property
    def bound(self) -> float:
        """Few steps are slower."""
        return min(MAX_RATIO, max(1.0, self.mean + DEVIATIONS * self.deviation))

    @property
    def is_known(self) -> bool:
        """Whether enough steps were seen to say what is beyond them."""
        return self.steps == KNOWN_STEPS

    def after(self, ratio: float) -> AssumedRatio:
        """The cell after one more step."""
        weight = weight_after(self.steps)
        mean = blended(self.mean, ratio, weight)
        deviation = blended(self.deviation, abs(ratio - self.mean), weight)
        covers = max(deviation, (ratio - mean) / DEVIATIONS)  # a violation raises the bound at once
        return AssumedRatio(mean, covers, min(self.steps + 1, KNOWN_STEPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionGuard:
    """Slowdown ratios; never below 1 (invariant 7)."""

    default_ratio: float
    """For cells of which nothing is known. MuxWise saw at most 1.2 on A100 and 1.3 on H100."""
    cells: Mapping[GuardCell, float] = field(default_factory=dict)
    is_frozen: bool = False
    """The operator wants it to stay as it is: nothing is learned."""
    device_ratio: float = 1.0
    """By which the device proved slower than it is predicted, whatever runs beside what: on top of the
    slowdowns, so that not each cell has to be violated for it."""
    assumed: Mapping[int, AssumedRatio] = field(default_factory=dict)
    """By decode SMs, for cells of which nothing is known, where `default_ratio` proved too low. Predictions
    that are too short on so many SMs are so for all cells; each of them need not be violated for it."""

    def __post_init__(self) -> None:
        for ratio in (self.default_ratio, *self.cells.values()):
            if not 1.0 <= ratio <= MAX_RATIO:
                raise ProfileError(f"guard ratio {ratio} is outside 1 to {MAX_RATIO:g}")

    def ratio(self, decode_sms: int, prefill: PrefillShape, decode: DecodeShape) -> float:
        """The worst slowdown to expect of decode on so many SMs beside this prefill."""
        known = self.cells.get(guard_cell(decode_sms, prefill, decode))
        return self.device_ratio * (self.assumed_ratio(decode_sms) if known is None else known)

    def assumed_ratio(self, decode_sms: int) -> float:
        """The ratio of a cell of which nothing is known, before `device_ratio`: by the steps seen on so many
        SMs, or by the worse of the nearest more and fewer SMs that were seen; the default while none was."""
        if not self.assumed:
            return self.default_ratio
        if decode_sms in self.assumed:
            return max(self.default_ratio, self.assumed[decode_sms].bound)
        fewer = max([sms for sms in self.assumed if sms < decode_sms], default=None)
        more = min([sms for sms in self.assumed if sms > decode_sms], default=None)
        near = [self.assumed[sms].bound for sms in (fewer, more) if sms is not None]
        return max(self.default_ratio, *near)

    def is_known(self, decode_sms: int, prefill: PrefillShape, decode: DecodeShape) -> bool:
        """Whether the ratio of these is of steps that were seen, so that a step far beyond it has stalled."""
        if guard_cell(decode_sms, prefill, decode) in self.cells:
            return True
        seen = self.assumed.get(decode_sms)
        return seen is not None and seen.is_known

    def on_device(self, ratio: float) -> ContentionGuard:
        """The guard of a device that takes `ratio` times what is predicted; of a faster one it stays as
        profiled."""
        ratio = max(1.0, ratio)
        if self.is_frozen or abs(ratio - self.device_ratio) < LEAST_CHANGE:
            return self
        return replace(self, device_ratio=ratio)

    def updated(self, before: ContentionGuard, after: ContentionGuard) -> ContentionGuard:
        """The guard `after`, which follows `before` in the store, with the cells that were raised here and
        are not stored yet.

        Where the store has changed a cell, its value counts: it knows more, or an operator has reset the
        cell.
        """
        ours = {
            cell: ratio
            for cell, ratio in self.cells.items()
            if ratio > after.cells.get(cell, after.default_ratio)
            and before.cells.get(cell) == after.cells.get(cell)
        }
        if not ours and not self.assumed and self.device_ratio == after.device_ratio:
            return after
        cells = {**after.cells, **ours}
        return replace(after, cells=cells, assumed=self.assumed, device_ratio=self.device_ratio)

    def learned(self, cell: GuardCell, observed_ratio: float) -> ContentionGuard:
        """The guard after one observation: a violation raises its cell at once; nothing else changes."""
        observed = min(observed_ratio / self.device_ratio, MAX_RATIO)
        if self.is_frozen or observed <= self.cells.get(cell, self.assumed_ratio(cell[0])):
            return self
        return replace(self, cells={**self.cells, cell: observed})

    def learned_for_all(self, cell: GuardCell, observed_ratio: float) -> ContentionGuard:
        """The same, but the violation of a cell of which nothing is known raises all such cells on as many
        SMs, and from then on they follow the steps that are seen there."""
        sms, observed = cell[0], min(observed_ratio / self.device_ratio, MAX_RATIO)
        if self.is_frozen or cell in self.cells:
            return self.learned(cell, observed_ratio)
        bound, seen = self.assumed_ratio(sms), self.assumed.get(sms)
        if observed <= bound and not self.assumed:
            return self  # the default holds
        if seen is not None and seen.is_known and observed > bound:
            return self.learned(cell, observed_ratio)
        after = AssumedRatio.of(observed) if seen is None else seen.after(observed)
        return replace(self, assumed={**self.assumed, sms: after})
