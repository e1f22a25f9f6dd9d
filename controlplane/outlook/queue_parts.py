"""The gate of a forecast's queue, and the requests that decode beside it."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from pdmuxd.controlplane.telemetry.recent import P50, EndedRequest
from pdmuxd.engine.core.quantiles import nearest_rank


class Gate:
    """Requests of limited tenants, of which only so many are let in at a time; by their index.

    Each holds its place for as long as it decoded; one that has not ended, for as long as the median.
    """

    def __init__(self, requests: Sequence[EndedRequest], concurrency: Mapping[str, int]) -> None:
        self._requests = requests
        self._left = {name: max(1, most) for name, most in concurrency.items()}
        self._held: dict[str, deque[int]] = {name: deque() for name in concurrency}
        self._ends: list[tuple[float, str]] = []
        decoded: dict[str, list[float]] = {name: [] for name in concurrency}
        for one in requests:
            if one.tenant in decoded and one.ttft_s is not None:
                decoded[one.tenant].append(decoded_s(one))
        self._usual_s = {name: nearest_rank(each, P50) or 0.0 for name, each in decoded.items()}

    @property
    def holds(self) -> bool:
        return any(self._held.values())

    @property
    def next_s(self) -> float:
        """When the next of those that were let in ends."""
        return self._ends[0][0] if self._ends else math.inf

    def lets_in(self, index: int) -> bool:
        """Whether one that has come goes on; else it is held."""
        tenant = self._requests[index].tenant
        if tenant not in self._left:
            return True
        if not self._left[tenant]:
            self._held[tenant].append(index)
            return False
        self._left[tenant] -= 1
        return True

    def begun(self, index: int, now_s: float) -> None:
        one = self._requests[index]
        if one.tenant in self._left:
            decode_s = self._usual_s[one.tenant] if one.ttft_s is None else decoded_s(one)
            heapq.heappush(self._ends, (now_s + decode_s, one.tenant))

    def opened(self, now_s: float) -> list[int]:
        """Let in those that replace the ones that have ended."""
        found: list[int] = []
        while self._ends and self._ends[0][0] <= now_s:
            _, tenant = heapq.heappop(self._ends)
            if self._held[tenant]:
                found.append(self._held[tenant].popleft())
            else:
                self._left[tenant] += 1
        return found


class Decoding:
    """Requests that have their first token and go on, each for as long as it did; one that has not ended, for
    as long as the median of all. Asked at instants that grow."""

    def __init__(self, requests: Sequence[EndedRequest]) -> None:
        self._requests = requests
        self._ends: list[tuple[float, str]] = []
        self._last_s = 0.0
        """When the last of all ends that have begun."""
        self._of: Counter[str] = Counter()
        """Those that decode, by tenant."""
        self._usual_s = (
            nearest_rank((decoded_s(one) for one in requests if one.ttft_s is not None), P50) or 0.0
        )

    def begun(self, index: int, now_s: float) -> None:
        one = self._requests[index]
        decode_s = self._usual_s if one.ttft_s is None else decoded_s(one)
        heapq.heappush(self._ends, (now_s + decode_s, one.tenant))
        self._last_s = max(self._last_s, now_s + decode_s)
        self._of[one.tenant] += 1

    def at(self, now_s: float) -> tuple[int, frozenset[str], float]:
        """How many decode then, whose they are, and when the last of them ends."""
        while self._ends and self._ends[0][0] <= now_s:
            _, name = heapq.heappop(self._ends)
            self._of[name] -= 1
            if not self._of[name]:
                del self._of[name]
        return len(self._ends), frozenset(self._of), max(self._last_s, now_s)


def decoded_s(request: EndedRequest) -> float:
    """Seconds from its first token to its end."""
    return max(0.0, request.ended_s - request.arrived_s - (request.ttft_s or 0.0))
