"""Forecasts when a request would have its first token, so that one that can only be late is refused at once.

The queue is counted here in seconds of prefill, by the live predictors: requests that were sent to the engine
and have no first token yet. Ahead of a request are all requests of higher classes. Of its own class it is the
smaller of two: the whole queue, or its tenant's part of it divided by the tenant's share, which is what the
engine's fairness lets go first. Requests that are late already do not count, since the engine serves them
last. The rest of the error is learned, from how long first tokens really took against their forecasts.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.directory_change import ChangedTenant
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import PriorityClass
from pdmuxd.engine.link.messages import RequestRecord, TenantQueues
from pdmuxd.engine.loop.requests import MAX_WAIT_TARGETS, MIN_MAX_WAIT_S

UNREACHABLE = "deadline_unreachable"
ENGINE_CAUSES = (UNREACHABLE, "max_wait")
"""Why the engine ends a request that it has not begun; its error's code, or the first word of its message."""
_RANK: Mapping[PriorityClass, int] = {"interactive": 0, "standard": 1, "batch": 2}
_FORGET = 0.98
"""The weight of all earlier requests against the newest one in the learned pace."""
_PACE_RANGE = (0.25, 4.0)
_MOST_ERROR_BYTES = 4096
WANTED_AFTER_REFUSAL_S = 600.0
"""How long the queue is followed after the engine has refused a request, since such clients are told when to
try again."""
_LAST_EVENTS = 4

Speed = Callable[[int], float]
"""From new tokens to seconds of prefill, beside the decoding at this moment."""


@dataclass(slots=True)
class _Line:
    """The requests of one tenant that have no first token yet."""

    rank: int
    weight: float
    waiting: int = 0
    seconds: float = 0.0
    """Seconds of prefill of those that can still be in time."""
    counted: float = 0.0
    """The part of these seconds that counts as ahead: no more requests than have no first token by what the
    engine says."""


@dataclass(slots=True, kw_only=True)
class _Sent:
    tenant: str
    record: TenantRecord
    new_tokens: int
    sent_s: float
    seconds: float
    deadline_s: float
    forecast_s: float
    """The forecast before the learned pace was applied, seconds."""
    is_late: bool = False
    has_begun: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecasts for one request: seconds until its first token, and the same with nobody ahead of it."""

    first_token_s: float
    alone_s: float


@dataclass(slots=True)
class _Pace:
    forecast_s: float = 0.0
    really_s: float = 0.0

    @property
    def ratio(self) -> float:
        low, high = _PACE_RANGE
        return min(high, max(low, self.really_s / self.forecast_s)) if self.forecast_s > 1.0 else 1.0

    def learn(self, forecast_s: float, really_s: float) -> None:
        self.forecast_s = _FORGET * self.forecast_s + forecast_s
        self.really_s = _FORGET * self.really_s + really_s


def _wishes(tenant: TenantRecord) -> bool:
    return tenant.late_action == "refuse" or tenant.max_wait_ms is not None


@dataclass(slots=True)
class FirstTokens:
    """Used in the event loop only. It counts nothing while nobody wants a forecast or no speed is known."""

    clock: Callable[[], float] = time.monotonic
    speed: Speed | None = None
    _wishing: set[str] = field(default_factory=set)
    """The tenants that have late requests refused, or say how long they may wait."""
    _wanted_until_s: float = -math.inf
    """Until then forecasts are wanted, because the engine has refused requests lately."""
    _lines: dict[str, _Line] = field(default_factory=dict)
    _by_rank: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    _weight_by_rank: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _deadlines: list[tuple[float, str]] = field(default_factory=list)
    _pace: _Pace = field(default_factory=_Pace)

    def use_tenants(self, tenants: Iterable[TenantRecord]) -> None:
        """Tenants have changed: these are all."""
        self._wishing = {tenant.name for tenant in tenants if _wishes(tenant)}

    def use_changed(self, changed: Iterable[ChangedTenant]) -> None:
        """Look at the tenants that these have changed: with ten thousand, looking at all takes 5 ms."""
        for name, _, tenant in changed:
            wishes = tenant is not None and _wishes(tenant)
            (self._wishing.add if wishes else self._wishing.discard)(name)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody needs a forecast now."""
        return bool(self._wishing) or self.clock() < self._wanted_until_s

    def admit(self, rid: str, tenant: TenantRecord, new_tokens: int) -> None:
        """A request is about to be sent to the engine.

        Raises: RequestError 503 if its tenant refuses late requests, this one would be late, and would be in
        time with nobody before it: whether it is too long in itself the engine knows better, which counts
        its tokens.
        """
        if self.speed is None or not self.is_wanted:
            return
        now_s = self.clock()
        forecast = self.forecast(tenant, new_tokens, now_s)
        target_s = tenant.slo.ttft_target_s(new_tokens)
        if tenant.late_action == "refuse" and forecast.alone_s <= target_s < forecast.first_token_s:
            raise late(forecast.first_token_s, target_s)
        line = self._lines.get(tenant.name)
        if line is None:
            line = self._lines[tenant.name] = _Line(_RANK[tenant.priority_class], tenant.weight)
            self._weight_by_rank[line.rank] += line.weight
        seconds = self.speed(new_tokens)
        line.waiting += 1
        line.seconds += seconds
        self._count(line, line.counted + seconds)
        deadline_s = now_s + target_s
        self._sent[rid] = _Sent(
            tenant=tenant.name,
            record=tenant,
            new_tokens=new_tokens,
            sent_s=now_s,
            seconds=seconds,
            deadline_s=deadline_s,
            forecast_s=forecast.first_token_s / self._pace.ratio,
        )
        heapq.heappush(self._deadlines, (deadline_s, rid))

    def forecast(self, tenant: TenantRecord, new_tokens: int, now_s: float) -> Forecast:
        """Forecast for a request that would be sent now. Takes some microseconds, however many wait."""
        self._expire(now_s)
        rank = _RANK[tenant.priority_class]
        own_s = 0.0 if self.speed is None else self.speed(new_tokens)
        line = self._lines.get(tenant.name)
        weights = self._weight_by_rank[rank] + (tenant.weight if line is None else 0.0)
        its_line_s = 0.0 if line is None else line.counted
        fair_s = (its_line_s + own_s) * max(1.0, weights / tenant.weight)
        ahead_s = sum(self._by_rank[:rank]) + min(self._by_rank[rank] + own_s, fair_s)
        pace = self._pace.ratio
        return Forecast(first_token_s=ahead_s * pace, alone_s=own_s * pace)

    def begun(self, rid: str) -> None:
        """The answer to this request begins."""
        sent = self._sent.get(rid)
        if sent is not None and not sent.has_begun:
            sent.has_begun = True
            self._remove(sent)

    def ended(self, rid: str) -> None:
        """The gateway is done with this request."""
        self.begun(rid)
        sent = self._sent.pop(rid, None)
        if sent is not None and len(self._deadlines) > 2 * len(self._sent) + 64:
            self._deadlines = [(each.deadline_s, other) for other, each in self._sent.items()]
            heapq.heapify(self._deadlines)

    def retry_after_s(self, rid: str, cause: str, *, waited_s: float) -> int:
        """When a request like this one, which the engine has not begun, would be begun in time: by the queue
        that is ahead of it now. Of one that was not counted here: as long again as it has waited.
        """
        now_s = self.clock()
        self._wanted_until_s = now_s + WANTED_AFTER_REFUSAL_S
        sent = self._sent.get(rid)
        if sent is None:
            return max(1, math.ceil(waited_s))
        self.begun(rid)  # it is ahead of nobody any more
        forecast = self.forecast(sent.record, sent.new_tokens, now_s)
        target_s = sent.deadline_s - sent.sent_s
        if cause == UNREACHABLE:
            return max(1, math.ceil(forecast.first_token_s - target_s))
        most_s = longest_queue_wait_s(target_s, sent.record.max_wait_ms)
        return max(1, math.ceil(forecast.first_token_s - forecast.alone_s - most_s))

    def on_request(self, record: RequestRecord) -> None:
        """The engine has told how long a first token took."""
        sent = self._sent.get(record.request_id)
        if sent is not None:
            if record.ttft_s is not None:
                self._pace.learn(sent.forecast_s, record.ttft_s)
            self.begun(record.request_id)

    def on_queues(self, queues: TenantQueues) -> None:
        """How many requests have no first token, as the engine says. For answers that are not streamed the
        gateway learns it only at their end."""
        waiting = {queue.tenant: queue.waiting for queue in queues.queues}
        for name, line in self._lines.items():
            part = min(1.0, waiting.get(name, 0) / line.waiting) if line.waiting else 0.0
            self._count(line, line.seconds * part)

    def _expire(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, rid = heapq.heappop(self._deadlines)
            sent = self._sent.get(rid)
            if sent is not None and not sent.has_begun and not sent.is_late:
                sent.is_late = True
                self._take_off(self._lines[sent.tenant], sent.seconds)

    def _remove(self, sent: _Sent) -> None:
        line = self._lines[sent.tenant]
        if not sent.is_late:
            self._take_off(line, sent.seconds)
        line.waiting -= 1
        if not line.waiting:
            self._count(line, 0.0)
            del self._lines[sent.tenant]
            self._weight_by_rank[line.rank] -= line.weight
            if not self._lines:
                self._by_rank, self._weight_by_rank = [0.0] * 3, [0.0] * 3  # what rounding left

    def _take_off(self, line: _Line, seconds: float) -> None:
        part = line.counted / line.seconds if line.seconds > 0 else 0.0
        line.seconds = max(0.0, line.seconds - seconds)
        self._count(line, max(0.0, line.counted - seconds * part))

    def _count(self, line: _Line, seconds: float) -> None:
        self._by_rank[line.rank] += seconds - line.counted
        line.counted = seconds


def late(first_token_s: float, target_s: float) -> RequestError:
    """The error for a request that can only be late."""
    retry_after_s = max(1, math.ceil(first_token_s - target_s))
    return RequestError(
        f"the first token is expected after {to_ms(first_token_s):.0f} ms, and is due after "
        f"{to_ms(target_s):.0f} ms: too many are waiting; try again in {retry_after_s} s",
        status=503,
        code=UNREACHABLE,
        retry_after_s=retry_after_s,
        details={
            "expected_ttft_ms": round(to_ms(first_token_s)),
            "ttft_target_ms": round(to_ms(target_s)),
        },
    )


def longest_queue_wait_s(ttft_target_s: float, max_wait_ms: int | None) -> float:
    """How long the engine lets a request wait for the start of its prefill."""
    if max_wait_ms is not None:
        return max_wait_ms / 1000
    return max(MIN_MAX_WAIT_S, MAX_WAIT_TARGETS * ttft_target_s)


def refused_by_engine(answer: bytes, retry_after_s: Callable[[str], int]) -> RequestError | None:
    """The error for our client, if this is the engine's answer to a request that it ended without beginning;
    `retry_after_s` is asked by its cause.

    It may be a whole body or the first events of a stream, in the shape of any API; the error is one of the
    last of these events.
    """
    if not any(cause.encode() in answer for cause in ENGINE_CAUSES):
        return None
    for event in answer.rstrip().rsplit(b"\n\n", _LAST_EVENTS)[-_LAST_EVENTS:]:
        data = event if event.startswith(b"{") else event.partition(b"data:")[2]
        for text in _error_texts(_decoded(data)):
            # SGLang puts the status before the message in answers of its Responses API.
            cause, _, why = text.removeprefix("503: ").partition(":")
            if cause in ENGINE_CAUSES:
                message = why.strip() or "the engine has not begun this request"
                return RequestError(message, status=503, code=cause, retry_after_s=retry_after_s(cause))
    return None


def _decoded(data: bytes) -> object:
    """JSON of a bounded size; None for anything else."""
    if len(data) > _MOST_ERROR_BYTES:
        return None
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None


def _error_texts(found: object) -> list[str]:
    """The fields in which an engine names the cause. What a model has written is not among them."""
    if not isinstance(found, dict):
        return []
    response = found.get("response")
    if isinstance(response, dict):  # the last event of OpenAI's Responses API
        found = response
    error, meta = found.get("error"), found.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, dict) else None
    places = [error if isinstance(error, dict) else {}, reason if isinstance(reason, dict) else {}]
    if found.get("object") == "error":
        places.append(found)
    texts = [place.get("message") for place in places] + [place.get("code") for place in places]
    return [text for text in texts if isinstance(text, str)]
