"""What fused steps take beside what is typical of them: the scatter, stalls, and the host.

The contention guard does not cover a fused step, and a step that is planned to end just at the target misses
it whenever it takes longer than predicted. Three things are told apart, since each wants another plan:

- *Scatter* is planned for: a quantile of measured over expected time, the mean deviation times a factor.
  The deviation follows within a hundred steps, as a retransmission timeout does (Jacobson, SIGCOMM 1988);
  the factor is corrected step by step until as few exceed the bound as the target allows (Robbins and
  Monro, 1951).
- A *stall* is a step further off than scatter explains. A smaller step stalls as well, so it does not enter
  the quantile. Whether steps leave room for the next one is a choice of the policy: it has its price in
  throughput.
- The *floor* is what the host needs to launch a step of few tokens, however fast the device is. It is learned
  from steps that took far longer than predicted, several within a tenth of a second, since one by itself has
  stalled. It is forgotten within seconds, because a host is slow for a while and then fast again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pdmuxd.engine.core.estimates.batch_size_correction import FORGET_S
from pdmuxd.engine.core.running_mean import LAST_50, blended
from pdmuxd.engine.core.slo import DEFAULT_SLO

LATE_SHARE = 0.2
"""Of the gaps that a tenant's attainment leaves, those that may exceed the bound; the others are for stalls.
At 99% these are 2 of 1,000: a request is in time if the p99 of its gaps is, and 99% of requests of 130 gaps
are then."""
CORRECTION = 0.5
"""By which a step over the bound raises the factor; one within it lowers it so that both are even."""
LOWEST_FACTOR, HIGHEST_FACTOR = 1.0, 8.0
"""A step more than the second of mean deviations off has stalled: 6.4 sigma of a normal distribution. More
counts as that much in the deviation, so that it grows without end if more than one step in eight is: those
are not stalls, the device has changed."""
LEAST_DEVIATION = 0.003
"""So that steps which are all as expected do not make the next one a stall."""

PRIOR_DEVIATION, PRIOR_FACTOR = 0.05, 3.0
"""Before any step was seen."""

STALL_STEPS = 2000
"""So many steps after the last stall, about a minute, none is expected any more: rarer ones delay too few
gaps to matter."""

HOST_RATIO = 1.5
"""A step that took this many times its prediction waited for the host, or stalled."""
HOST_STEPS = 10
"""The host was slow if another of so many steps before took as long: it is for a tenth of a second and more
(as below), and steps of few tokens take about 10 ms. A stall in 300 steps has another as near in 1 of 30."""
FLOOR_RISE_S, FLOOR_FALL, FLOOR_HIGHEST_S = 0.002, 0.0003, 0.04
"""How the floor moves. It rises by at most the first with every step that waited for the host. It falls by
the second, a share of it, with every other step. A step above the third was not slowed by a host: no host
takes so long. Seen: 512 tokens beside three decoding requests took 9 to 34 ms where 14 were predicted (H200,
Llama-8B, SGLang 0.5.23, 2026-11-22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMargin:
    """Few steps take longer than `ratio` times what is expected, or than `floor_s` where that is more."""

    deviation: float = PRIOR_DEVIATION
    """Mean of how far steps are off what is expected, as a share of it. At first, with the factor, 1.15: the
    90th percentile of the fused predictor's error on shapes it had not seen (as above, 2026-11-21)."""
    factor: float = PRIOR_FACTOR
    """Mean deviations that few steps are beyond."""
    floor_s: float = 0.0
    stall_s: float = 0.0
    """What a stall adds to a step."""
    expected_stalls: int = 0
    """Steps for which a stall is still expected; 0: none was seen of late."""
    host_steps: int = 0
    """Steps within which another one that takes far too long says that the host is slow."""

    def with_ratio(self, ratio: float) -> LatencyMargin:
        """The margin with this ratio, at least 1, as a decision that was made with it told."""
        factor = max(0.0, ratio - 1.0) / self.deviation
        return replace(self, factor=min(HIGHEST_FACTOR, max(LOWEST_FACTOR, factor)))

    def expecting(self, stall_s: float) -> LatencyMargin:
        """The margin that expects a stall of so many seconds, as a decision that left room for it told."""
        return replace(self, stall_s=stall_s, expected_stalls=self.expected_stalls or STALL_STEPS)

    @property
    def ratio(self) -> float:
        """The ratio to what is expected of a step: few take longer."""
        return 1.0 + self.factor * self.deviation

    @property
    def expected_stall_s(self) -> float:
        """What a step has to be shorter by, if a stall is to do no harm; 0 if none was seen of late."""
        return self.stall_s if self.expected_stalls else 0.0

    def bound_s(self, predicted_s: float) -> float:
        """The seconds that few steps of this prediction exceed."""
        return max(self.ratio * predicted_s, self.floor_s)

    def typical_s(self, most_s: float, stall_s: float) -> float:
        """What a step typically takes that hardly ever takes longer than `most_s`, and that still does not
        when it stalls for `stall_s`."""
        return min(most_s / self.ratio, (most_s - stall_s) / (1.0 + self.deviation))

    def after(
        self, *, predicted_s: float, measured_s: float, attainment_ratio: float = DEFAULT_SLO.attainment_ratio
    ) -> LatencyMargin:
        """The margin after one more step, where so many gaps have to be in time."""
        off = measured_s / predicted_s - 1.0
        limit = HIGHEST_FACTOR * self.deviation
        deviation = max(LEAST_DEVIATION, blended(self.deviation, min(abs(off), limit), LAST_50))
        host_steps = max(0, self.host_steps - 1)
        if off > limit:
            may_be_host = HOST_RATIO * predicted_s < measured_s <= FLOOR_HIGHEST_S
            is_host = may_be_host and self.host_steps > 0
            lifted_s = min(measured_s, self.bound_s(predicted_s) + FLOOR_RISE_S)
            return replace(
                self.stalled(measured_s - predicted_s),
                deviation=deviation,
                floor_s=max(lifted_s, self.floor_s) if is_host else self.floor_s,
                host_steps=HOST_STEPS if may_be_host else host_steps,
            )
        late = off > self.factor * self.deviation
        factor = self.factor + CORRECTION * ((1.0 if late else 0.0) - LATE_SHARE * (1.0 - attainment_ratio))
        return replace(
            self,
            deviation=deviation,
            factor=min(HIGHEST_FACTOR, max(LOWEST_FACTOR, factor)),
            floor_s=self._lower_s(),
            expected_stalls=max(0, self.expected_stalls - 1),
            host_steps=host_steps,
        )

    def stalled(self, stall_s: float) -> LatencyMargin:
        """The value after a step, of this or another kind, that stalled for so long."""
        return replace(self, stall_s=max(stall_s, 0.9 * self.stall_s), expected_stalls=STALL_STEPS)

    def without_a_step(self, *, instead_s: float = 0.0) -> LatencyMargin:
        """The value after a step that was not fused: the floor is forgotten, or no fused step would ever be
        tried.

        So is scatter beyond what is assumed at first, with the half-life of what sizes took, for the seconds
        of steps that ran `instead_s` of fused ones: what was learned while a host was slow would else keep
        fused steps from being tried for good.
        """
        more, longer = self.deviation - PRIOR_DEVIATION, self.factor - PRIOR_FACTOR
        is_wide = instead_s > 0.0 and (more > 0.0 or longer > 0.0)
        if not self.floor_s and not is_wide:
            return self
        forgotten = 1.0 - math.exp2(-instead_s / FORGET_S)
        return replace(
            self,
            deviation=self.deviation - forgotten * max(0.0, more),
            factor=self.factor - forgotten * max(0.0, longer),
            floor_s=self._lower_s(),
        )

    def _lower_s(self) -> float:
        lower_s = self.floor_s * (1.0 - FLOOR_FALL)
        return lower_s if lower_s > FLOOR_RISE_S else 0.0
