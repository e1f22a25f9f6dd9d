"""Solo-run latency: the interface that policies predict with, and the fitted linear predictors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.shapes import DeviceShape
from pdmuxd.engine.core.sm_counts import between_counts, predict_s
from pdmuxd.engine.core.types import DecodeShape, PrefillShape, WaitingRequest

FITTED_CONTEXT_TOKENS = 8192
"""The longest context of a decoding request in the batches that fused predictors are fitted to."""


class LatencyModel(Protocol):
    """Predicted seconds of work that runs alone on `sms` SMs."""

    def prefill_s(self, shape: PrefillShape, sms: int) -> float:
        """All layers of a prefill batch."""

    def request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        """All layers of a prefill of one request."""

    def requests_s(self, requests: Sequence[WaitingRequest], sms: int) -> list[float]:
        """`request_s` of each: what a queue is ordered by in every decision, so it must be cheap."""

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        """One decode step, host work included: the gap between two tokens."""

    def fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """One batch of both."""

    def colocated_ratio(self, sms: int) -> float:
        """How many times longer than alone a prefill takes on so many SMs beside decode on the others."""


MAX_ENTRIES = 4096
"""Of a cache: enough for a long queue on a few partitions. When it is full, the cache is emptied."""


@dataclass(frozen=True, slots=True)
class LatencyCache:
    """Predicted seconds of waiting requests, kept: the queue is ordered by them at every safe point. By SMs,
    and by (new tokens, reused tokens)."""

    _cached_s: dict[int, dict[tuple[int, int], float]] = field(default_factory=dict)

    def lookup(
        self, new_tokens: int, reused_tokens: int, sms: int, compute: Callable[[int, int, int], float]
    ) -> float:
        """What `compute` gives for these three numbers, in seconds; it is called once for each three."""
        known_s = self._cached_s.get(sms)
        cached_s = None if known_s is None else known_s.get((new_tokens, reused_tokens))
        if cached_s is None:
            if sum(map(len, self._cached_s.values())) >= MAX_ENTRIES:
                self._cached_s.clear()
            cached_s = compute(new_tokens, reused_tokens, sms)
            self._cached_s.setdefault(sms, {})[new_tokens, reused_tokens] = cached_s
        return cached_s

    def lookup_all(
        self, requests: Sequence[WaitingRequest], sms: int, compute: Callable[[int, int, int], float]
    ) -> list[float]:
        """The same for each of these, in their order."""
        try:
            known_s = self._cached_s[sms]
            return [known_s[request.new_tokens, request.reused_tokens] for request in requests]
        except KeyError:  # somebody is new
            return [self.lookup(r.new_tokens, r.reused_tokens, sms, compute) for r in requests]


Curve = tuple[tuple[float, float], ...]
"""(size, seconds) by growing size: straight between two points, constant beyond the ends; may be empty."""


def on_curve(curve: Curve, size: float) -> float:
    """Seconds at `size`."""
    if not curve:
        return 0.0
    at = bisect_left(curve, (size,))
    if at == 0:
        return curve[0][1]
    if at == len(curve):
        return curve[-1][1]
    (left, left_s), (right, right_s) = curve[at - 1], curve[at]
    return left_s + (right_s - left_s) * (size - left) / (right - left)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillCoefficients:
    """MuxWise eq. 1: seconds per squared token, per new-by-reused token pair, per new token, and fixed.

    Three additions were needed on real devices. Reading reused KV costs time of its own where few new tokens
    attend to many reused ones. The line of new tokens bends (`curve`) and climbs in steps (`tile_tokens`).
    Nothing takes less than `floor_s`, the time to launch all layers, however little they compute.
    """

    per_new_squared_s: float
    per_new_times_reused_s: float
    per_new_s: float
    fixed_s: float
    curve: Curve = ()
    """Over the new tokens of the whole batch."""
    tile_tokens: int = 1
    """The line and the curve count new tokens in whole tiles: a matrix product computes a partly filled tile
    in full."""
    per_reused_s: float = 0.0
    floor_s: float = 0.0
    floor_per_request_s: float = 0.0
    """What a further request adds to launching."""
    is_floor_apart: bool = False
    """Whether the sum is what the device takes alone. Elsewhere the floor was part of what was measured."""
    colocated_ratio: float = 0.0
    """How many times longer than alone it typically takes beside decode; 0 if that was not measured."""

    def line_s(self, new_tokens: int) -> float:
        """The part that depends on the number of new tokens alone."""
        tokens = -(-new_tokens // self.tile_tokens) * self.tile_tokens
        line_s = self.per_new_s * tokens + self.fixed_s
        return line_s + on_curve(self.curve, tokens) if self.curve else line_s

    def launch_s(self, shape: PrefillShape) -> float:
        """What the host takes to launch it."""
        return self.floor_s + self.floor_per_request_s * max(0, shape.bs - 1)

    def device_s(self, shape: PrefillShape) -> float:
        """Seconds on the device; no less than launching where that was not measured apart."""
        sum_s = (
            self.per_new_squared_s * shape.sum_new_squared
            + self.per_new_times_reused_s * shape.sum_new_times_reused
            + self.per_reused_s * shape.reused_tokens
            + self.line_s(shape.new_tokens)
        )
        return sum_s if self.is_floor_apart else max(self.floor_s, sum_s)

    def predict_s(self, shape: PrefillShape) -> float:
        """Seconds for the whole batch: the longer of the device's and the host's."""
        return max(self.launch_s(shape), self.device_s(shape))

    def scaled(self, ratio: float) -> PrefillCoefficients:
        """The same predictor, `ratio` times slower."""
        return PrefillCoefficients(
            per_new_squared_s=self.per_new_squared_s * ratio,
            per_new_times_reused_s=self.per_new_times_reused_s * ratio,
            per_new_s=self.per_new_s * ratio,
            fixed_s=self.fixed_s * ratio,
            curve=_scaled(self.curve, ratio),
            tile_tokens=self.tile_tokens,
            per_reused_s=self.per_reused_s * ratio,
            floor_s=self.floor_s * (1.0 if self.is_floor_apart else ratio),
            floor_per_request_s=self.floor_per_request_s,
            is_floor_apart=self.is_floor_apart,
            colocated_ratio=self.colocated_ratio,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCoefficients:
    """MuxWise eq. 2: seconds per reused token, per request of the batch, and fixed.

    `curve` bends the line of requests; it is a function of the batch size that the device really runs.
    """

    per_reused_s: float
    per_request_s: float
    fixed_s: float
    curve: Curve = ()

    def predict_s(self, shape: DecodeShape, captured: Sequence[int] = ()) -> float:
        """Seconds for one step; `captured` are the batch sizes that batches are padded to, if any."""
        bs = padded_bs(shape.bs, captured)
        return (
            self.per_reused_s * shape.reused_tokens
            + self.per_request_s * bs
            + self.fixed_s
            + on_curve(self.curve, bs)
        )

    def scaled(self, ratio: float) -> DecodeCoefficients:
        """The same predictor, `ratio` times slower."""
        return DecodeCoefficients(
            per_reused_s=self.per_reused_s * ratio,
            per_request_s=self.per_request_s * ratio,
            fixed_s=self.fixed_s * ratio,
            curve=_scaled(self.curve, ratio),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedCoefficients:
    """A mixed batch: eq. 1 over all its tokens, decode's included, and eq. 2's reading of decode's KV.

    Attention takes the longer of two times: that of all contexts, shared by all SMs, and that of the longest
    context, which one SM reads alone where attention is not split.
    """

    prefill: PrefillCoefficients
    per_reused_s: float
    per_max_context_s: float = 0.0
    """Per token of the longest context; 0 if contexts are split over SMs."""
    captured: tuple[int, ...] = ()
    """Tokens of captured graphs, growing: a batch in between takes what the next one up takes."""
    per_request_s: float = 0.0
    """Per decoding request, beside its token: in a mixed batch each is a tile of attention of its own."""

    def predict_s(self, prefill: PrefillShape, decode: DecodeShape) -> float:
        """Seconds for the batch."""
        p = self.prefill
        contexts_s = (
            p.per_new_squared_s * prefill.sum_new_squared
            + p.per_new_times_reused_s * prefill.sum_new_times_reused
            + p.per_reused_s * prefill.reused_tokens
            + self.per_reused_s * decode.reused_tokens
        )
        if self.per_max_context_s:
            contexts_s = max(contexts_s, self.per_max_context_s * batch_max_context_tokens(prefill, decode))
        tokens = padded_bs(prefill.new_tokens + decode.bs, self.captured)
        return max(contexts_s + p.line_s(tokens) + self.per_request_s * decode.bs, p.floor_s)

    def scaled(self, ratio: float) -> FusedCoefficients:
        """The same predictor, `ratio` times slower."""
        return FusedCoefficients(
            prefill=self.prefill.scaled(ratio),
            per_reused_s=self.per_reused_s * ratio,
            per_max_context_s=self.per_max_context_s * ratio,
            captured=self.captured,
            per_request_s=self.per_request_s * ratio,
        )


def batch_max_context_tokens(prefill: PrefillShape, decode: DecodeShape) -> float:
    """The longest context of a mixed batch, as far as it is known.

    The sums of a batch give the context of a single prompt, and for several prompts the mean of their new
    tokens. For decode it is the mean if the longest was not recorded.
    """
    decode_tokens = decode.max_context_tokens or decode.reused_tokens / max(1, decode.bs)
    prefill_tokens = (prefill.sum_new_squared + prefill.sum_new_times_reused) / max(1, prefill.new_tokens)
    return max(decode_tokens, prefill_tokens)


def padded_bs(bs: int, captured: Sequence[int]) -> int:
    """The captured size that so many requests, or tokens, replay; their own if none is large enough."""
    at = bisect_left(captured, bs)
    return captured[at] if at < len(captured) else bs


def _scaled(curve: Curve, ratio: float) -> Curve:
    return tuple((size, seconds * ratio) for size, seconds in curve)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRunModel:
    """One pair of fitted predictors per SM count. Other SM counts are predicted from those (`sm_counts.py`),
    and what was not fitted is left to `fallback`.

    Raises: ProfileError when asked for a negative SM count.
    """

    prefill: Mapping[int, PrefillCoefficients | None]
    """None, here and of decode: the count was measured, and the fallback predicts it better."""
    decode: Mapping[int, DecodeCoefficients | None]
    fallback: LatencyModel
    device: DeviceShape | None = None
    """Which SM counts are whole groups; None: all are."""
    fused: Mapping[int, FusedCoefficients] = field(default_factory=dict)
    captured_bs: tuple[int, ...] = ()
    """Batch sizes with a captured decode graph, growing; empty if decode is not padded."""
    _cache: LatencyCache = field(default_factory=LatencyCache, init=False, repr=False, compare=False)
    """Of `request_s` and `requests_s`."""

    def prefill_s(self, shape: PrefillShape, sms: int) -> float:
        """Source: MuxWise eq. 1."""
        fitted = self.prefill.get(sms)
        if fitted is not None:
            return fitted.predict_s(shape)
        if _positive(sms) in self.prefill:
            return self.fallback.prefill_s(shape, sms)
        return predict_s(
            sms,
            self.prefill,
            lambda known: self.prefill_s(shape, known),
            lambda any_sms: self.fallback.prefill_s(shape, any_sms),
        )

    def request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        """MuxWise eq. 1 for a batch of one."""
        return self._cache.lookup(new_tokens, reused_tokens, sms, self._request_s)

    def requests_s(self, requests: Sequence[WaitingRequest], sms: int) -> list[float]:
        """`request_s` of each."""
        return self._cache.lookup_all(requests, sms, self._request_s)

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        """Source: MuxWise eq. 2."""
        fitted = self.decode.get(sms)
        if fitted is not None:
            return fitted.predict_s(shape, self.captured_bs)
        if _positive(sms) in self.decode:
            return self.fallback.decode_s(shape, sms)
        device = self.device
        return predict_s(
            sms,
            self.decode,
            lambda known: self.decode_s(shape, known),
            lambda any_sms: self.fallback.decode_s(shape, any_sms),
            float if device is None else lambda any_sms: device.grouped_sms(any_sms, shape.bs),
        )

    def fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """Source: MuxWise eq. 1 and 2 joined.

        The fits do not cover a batch without prompt tokens; the fallback predicts it. The fallback also says
        what a context adds that is longer than any fitted one, unless the fit has a term for that.
        """
        fitted = self.fused.get(sms) if prefill.new_tokens else None
        if fitted is None:
            return self.fallback.fused_s(prefill, decode, sms)
        fitted_s = fitted.predict_s(prefill, decode)
        if fitted.per_max_context_s or decode.max_context_tokens <= FITTED_CONTEXT_TOKENS:
            return fitted_s
        usual = replace(decode, max_context_tokens=FITTED_CONTEXT_TOKENS)
        fallback_s = self.fallback.fused_s(prefill, decode, sms)
        return fitted_s + fallback_s - self.fallback.fused_s(prefill, usual, sms)

    def colocated_ratio(self, sms: int) -> float:
        """The ratio as measured, by those measured around, or the fallback's."""
        fitted = self.prefill.get(sms)
        if fitted is None and sms not in self.prefill:
            known = {n: one.colocated_ratio for n, one in self.prefill.items() if one and one.colocated_ratio}
            between = between_counts(sms, known, known.__getitem__)
            if between is not None:
                return between
        return (fitted.colocated_ratio if fitted is not None else 0.0) or self.fallback.colocated_ratio(sms)

    def _request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        fitted = self.prefill.get(sms)
        if fitted is None:
            if _positive(sms) in self.prefill:
                return self.fallback.request_s(new_tokens, reused_tokens, sms)
            return self.prefill_s(PrefillShape.of([(new_tokens, reused_tokens)]), sms)
        sum_s = (
            (fitted.per_new_squared_s * new_tokens + fitted.per_new_times_reused_s * reused_tokens)
            * new_tokens
            + fitted.per_reused_s * reused_tokens
            + fitted.line_s(new_tokens)
        )
        return max(fitted.floor_s, sum_s)


def _positive(sms: int) -> int:
    if sms <= 0:
        raise ProfileError(f"no latency on {sms} SMs")
    return sms
