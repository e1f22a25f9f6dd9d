"""Collects what the engine tells during a replay into columns, with no work per token in Python."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pdmuxd.daemon.replay.metrics import ROUNDING_S
from pdmuxd.daemon.replay.outcomes import Outcomes, nearest_rank
from pdmuxd.engine.core.types import Decision
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase

TokenTimes = Callable[[EmulatedRequest], NDArray[np.float64]]


class Collector:
    """The replay's engine observer. Every request's id must be its index in the trace, as text."""

    def __init__(self, requests: Sequence[EmulatedRequest], tbt_s: float) -> None:
        count = len(requests)
        self._requests = requests
        self._tbt_s, self._limit_s = tbt_s, tbt_s + ROUNDING_S
        self._tbt_use = array("f")
        self._ttft_s = np.full(count, np.inf)
        self._gap_p99_s = np.zeros(count)
        self._gap_max_s = np.zeros(count)
        self._gaps_met = np.zeros(count, dtype=np.int64)
        self._gaps_s = np.zeros(sum(r.output_tokens - 1 for r in requests), dtype=np.float32)
        self._gaps = 0
        self._end_s = np.full(count, np.inf)
        self._produced = np.zeros(count, dtype=np.int64)
        self._recorded = np.zeros(count, dtype=np.bool_)
        self._token_times: TokenTimes | None = None
        self.ended = 0
        self.step_s_by_reason: dict[str, float] = {}
        """Seconds of device work under each reason since the last `take_reasons`."""

    def attach(self, token_times: TokenTimes) -> None:
        """Give the engine's `token_times`; the engine is built with its observer, so this comes after."""
        self._token_times = token_times

    def take_reasons(self) -> dict[str, float]:
        """Hand over and reset `step_s_by_reason`."""
        timing, self.step_s_by_reason = self.step_s_by_reason, {}
        return timing

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        """Nothing: the request carries it."""

    def on_decode_tokens(self, requests: Iterable[EmulatedRequest], now_s: float) -> None:
        """Nothing: the engine's step log has them all when the request ends."""

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        """Take the request's tokens while the engine still has them."""
        self.ended += 1
        self._end_s[int(request.request_id)] = now_s
        self._record(request)

    def on_step(self, decision: Decision, start_s: float, end_s: float) -> None:
        """Add the step to its reason's time."""
        reasons = self.step_s_by_reason
        reasons[decision.reason] = reasons.get(decision.reason, 0.0) + end_s - start_s
        if decision.decode_steps and (decision.token_budget or decision.prefill_layers):
            self._tbt_use.append((end_s - start_s) / self._tbt_s)

    def tbt_use(self) -> NDArray[np.float32]:
        """What decode steps with prompt tokens in or beside them took, over the TBT target."""
        return np.array(self._tbt_use, dtype=np.float32)

    def outcomes(self) -> Outcomes:
        """The columns; requests that never ended are recorded with what they have got so far."""
        requests = self._requests
        for request in requests:
            if not self._recorded[int(request.request_id)]:
                self._record(request)
        tenants = sorted({request.tenant for request in requests})
        index = {tenant: i for i, tenant in enumerate(tenants)}
        return Outcomes(
            arrival_s=np.array([r.arrival_s for r in requests]),
            input_tokens=_counts(r.input_tokens for r in requests),
            output_tokens=_counts(r.output_tokens for r in requests),
            produced_tokens=self._produced,
            reused_tokens=_counts(r.reused_tokens for r in requests),
            ttft_s=self._ttft_s,
            gap_p99_s=self._gap_p99_s,
            gap_max_s=self._gap_max_s,
            gaps_met=self._gaps_met,
            end_s=self._end_s,
            finished=np.array([r.phase is Phase.FINISHED for r in requests]),
            failed=np.array([r.phase in (Phase.FAILED, Phase.ABORTED, Phase.REFUSED) for r in requests]),
            tenants=tuple(tenants),
            tenant=_counts(index[r.tenant] for r in requests),
            gaps_s=self._gaps_s[: self._gaps],
        )

    def _record(self, request: EmulatedRequest) -> None:
        assert self._token_times is not None, "attach() comes before the first request"  # noqa: S101
        i = int(request.request_id)
        self._recorded[i] = True
        times_s = self._token_times(request)
        self._produced[i] = len(times_s)
        if len(times_s) == 0:
            return
        self._ttft_s[i] = times_s[0] - request.arrival_s
        gaps_s = np.diff(times_s)
        if len(gaps_s) == 0:
            return
        self._gaps_s[self._gaps : self._gaps + len(gaps_s)] = gaps_s
        self._gaps += len(gaps_s)
        self._gap_p99_s[i] = nearest_rank(gaps_s, 990)
        self._gap_max_s[i] = gaps_s.max()
        self._gaps_met[i] = np.count_nonzero(gaps_s <= self._limit_s)


def _counts(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)
