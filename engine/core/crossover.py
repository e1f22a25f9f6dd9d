"""The compute/memory crossover: up to how many new tokens a prefill is bound by memory, fitted at run time.

A prefill of L new tokens over H reused ones computes for `alpha * L * (L + 2H) + beta * L` seconds and moves
KV for `gamma_w * L + gamma_r * H` seconds; it is short while the second is the longer one.

Source: PLA-Serve section 2.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdmuxd.engine.core.types import PrefillSample

FLOOR_TOKENS = 256
"""The longest captured graph.

The equations count KV traffic alone. A device that computes for 20 us per token but moves its KV in 32 ns is
then compute-bound at any length; they leave out the reading of the weights, which is what binds a short
prefill. PLA-Serve measured the crossover at 150 to 512 tokens on A100 to H200 with models of 7B to 32B. 256
lies in that range, and up to 256 there is a graph.
"""

MIN_SAMPLES = 8
"""Four coefficients from two measurements each would fit any noise."""

MIN_INDEPENDENCE = 1e-6
"""1 minus the squared cosine of the two regressors. Below it they are nearly the same line, and which of them
a cost belongs to cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverFit:
    """The coefficients in seconds: per token pair, per new token, per KV token written and read."""

    alpha_s: float
    beta_s: float
    gamma_w_s: float
    gamma_r_s: float

    def compute_s(self, new_tokens: int, reused_tokens: int) -> float:
        """T_comp = alpha * L * (L + 2H) + beta * L."""
        return (self.alpha_s * (new_tokens + 2 * reused_tokens) + self.beta_s) * new_tokens

    def memory_s(self, new_tokens: int, reused_tokens: int) -> float:
        """T_mem = gamma_w * L + gamma_r * H."""
        return self.gamma_w_s * new_tokens + self.gamma_r_s * reused_tokens

    def prefill_crossover_tokens(self) -> float:
        """L_m without history: max(0, (gamma_w - beta) / alpha)."""
        return max(0.0, (self.gamma_w_s - self.beta_s) / self.alpha_s)

    def reprefill_crossover_tokens(self, reused_tokens: int) -> float:
        """L_m over H reused tokens: the positive root of T_comp = T_mem; tends to gamma_r / (2 alpha)."""
        b = 2.0 * self.alpha_s * reused_tokens + self.beta_s - self.gamma_w_s
        root = math.sqrt(b * b + 4.0 * self.alpha_s * self.gamma_r_s * reused_tokens)
        if b > 0.0:  # the same root, without the difference of two nearly equal numbers
            return 2.0 * self.gamma_r_s * reused_tokens / (root + b)
        return max(0.0, (root - b) / (2.0 * self.alpha_s))

    def crossover_tokens(self, reused_tokens: int) -> float:
        """Whichever of the two closed forms applies."""
        if not reused_tokens:
            return self.prefill_crossover_tokens()
        return self.reprefill_crossover_tokens(reused_tokens)

    @property
    def largest_crossover_tokens(self) -> float:
        """No history has a crossover above this: L_m runs monotonically from H = 0 to its limit."""
        return max(self.prefill_crossover_tokens(), self.gamma_r_s / (2.0 * self.alpha_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Running sums of a least-squares fit of y = a * u + b * v."""

    uu: float = 0.0
    uv: float = 0.0
    vv: float = 0.0
    uy: float = 0.0
    vy: float = 0.0

    def plus(self, u: float, v: float, y: float) -> _Pair:
        return _Pair(
            uu=self.uu + u * u,
            uv=self.uv + u * v,
            vv=self.vv + v * v,
            uy=self.uy + u * y,
            vy=self.vy + v * y,
        )

    def solve(self) -> tuple[float, float] | None:
        """(a, b); None if u and v are too alike to tell their shares apart."""
        scale = self.uu * self.vv
        determinant = scale - self.uv * self.uv
        if scale <= 0.0 or determinant <= MIN_INDEPENDENCE * scale:
            return None
        a = (self.uy * self.vv - self.vy * self.uv) / determinant
        b = (self.vy * self.uu - self.uy * self.uv) / determinant
        return a, b


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverSamples:
    """The sums over all samples so far: one more sample costs the same however many there were."""

    count: int = 0
    compute: _Pair = _Pair()
    memory: _Pair = _Pair()

    def plus(self, sample: PrefillSample) -> CrossoverSamples:
        """The value with one sample more; one that is not a measurement (no tokens, not finite) changes
        nothing."""
        new, reused = sample.new_tokens, sample.reused_tokens
        if new <= 0 or reused < 0 or not (math.isfinite(sample.compute_s) and math.isfinite(sample.memory_s)):
            return self
        return CrossoverSamples(
            count=self.count + 1,
            compute=self.compute.plus(float(new * (new + 2 * reused)), float(new), sample.compute_s),
            memory=self.memory.plus(float(new), float(reused), sample.memory_s),
        )

    def fit(self) -> CrossoverFit | None:
        """The four coefficients; None with too few samples, all of one shape, or an unphysical result."""
        if self.count < MIN_SAMPLES:
            return None
        compute, memory = self.compute.solve(), self.memory.solve()
        if compute is None or memory is None:
            return None
        (alpha_s, beta_s), (gamma_w_s, gamma_r_s) = compute, memory
        if alpha_s <= 0.0 or min(beta_s, gamma_w_s, gamma_r_s) < 0.0:
            return None
        return CrossoverFit(alpha_s=alpha_s, beta_s=beta_s, gamma_w_s=gamma_w_s, gamma_r_s=gamma_r_s)


def is_short(new_tokens: int, reused_tokens: int, fit: CrossoverFit | None) -> bool:
    """Whether a prefill is of the short class: at most max(L_m, FLOOR_TOKENS) new tokens."""
    if new_tokens <= FLOOR_TOKENS:
        return True
    return fit is not None and new_tokens <= fit.crossover_tokens(reused_tokens)
