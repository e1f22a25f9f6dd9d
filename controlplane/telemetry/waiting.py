"""Open requests: which wait for their first token, for how long, and which are past their TTFT target now.

Latencies are known of requests that ended; under overload few end. So what is still open is judged as well.
The gateway sees the first token of an answer that is streamed, and of others only the end: of those the
engine says how many have none yet. The target grows with the prompt, whose tokens only the engine counts:
until the request ends they are taken from its bytes, by what its tenant's earlier requests had.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pdmuxd.controlplane.history.batch import Gauges
from pdmuxd.controlplane.telemetry.expected_tokens import ExpectedTokens
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.slo import RequestTargets, Slo
from pdmuxd.engine.link.messages import TenantQueue, TenantQueues

COUNTED_AT_ONCE = 50
"""Open requests, which take some 8 us each."""
REPORT_HOLDS_S = 2.0
"""A report of the engine that is older says nothing of now: then no request is taken to have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCounts:
    """One tenant's open requests."""

    waiting: int = 0
    """Without a first token."""
    late: int = 0
    """Of these, past their TTFT target."""
    oldest_wait_s: float = 0.0
    begun: int = 0
    """With a first token, and not ended; those that are streamed."""
    begun_late: int = 0
    """Of these, whose first token was late."""

    @property
    def judged(self) -> int:
        """Requests whose TTFT verdict is known, though they have not ended."""
        return self.late + self.begun

    @property
    def missed(self) -> int:
        """Misses of what is judged."""
        return self.late + self.begun_late


NOTHING_OPEN = OpenCounts()


@dataclass(slots=True, kw_only=True)
class OpenRequest:
    """One request between its arrival at the gateway and its end."""

    tenant: str
    arrived_s: float
    body_bytes: int | None = None
    """None while the body is being read: it cannot be late then."""
    is_streamed: bool = True
    answers: int = 1
    is_sent: bool = False
    """To the engine; before that no token can have come."""
    first_s: float | None = None
    targets: RequestTargets | None = None
    """Of its own, in place of its tenant's."""


@dataclass(slots=True)
class _Tally:
    waiting: int = 0
    late: int = 0
    oldest_s: float = 0.0
    begun: int = 0
    begun_late: int = 0
    # Of answers that are not streamed, and have not ended.
    whole: int = 0
    whole_late: int = 0
    whole_oldest_s: float = 0.0


class OpenRequests:
    """All, by id: as many as admission allows. Written in one thread; `counts` may be called in any."""

    def __init__(self, expected: ExpectedTokens) -> None:
        self._expected = expected
        self._open: dict[str, OpenRequest] = {}
        self._queues: dict[str, TenantQueue] = {}
        self._reported_s: float | None = None

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, request_id: str, *, tenant: str, now_s: float) -> None:
        self._open[request_id] = OpenRequest(tenant=tenant, arrived_s=now_s)

    def use_targets(self, request_id: str, targets: RequestTargets) -> None:
        request = self._open.get(request_id)
        if request is not None:
            request.targets = targets

    def read(
        self, request_id: str, *, is_streamed: bool, body_bytes: int, read_s: float, answers: int = 1
    ) -> None:
        """Note that its body is there and took `read_s` to arrive, for which nobody here can be blamed; less
        than 0 if it lay there before the gateway looked."""
        request = self._open.get(request_id)
        if request is not None:
            request.is_streamed, request.body_bytes, request.answers = is_streamed, body_bytes, answers
            request.arrived_s += read_s

    def sent(self, request_id: str) -> None:
        request = self._open.get(request_id)
        if request is not None:
            request.is_sent = True

    def first_byte(self, request_id: str, now_s: float) -> None:
        """Note that its answer began to arrive."""
        request = self._open.get(request_id)
        if request is not None and request.first_s is None:
            request.first_s = now_s

    def find(self, request_id: str) -> OpenRequest | None:
        return self._open.get(request_id)

    def end(self, request_id: str) -> OpenRequest | None:
        """Note that it is answered, or has ended in the engine; None if it was before."""
        return self._open.pop(request_id, None)

    def report(self, queues: TenantQueues | None, now_s: float) -> None:
        """The engine's word on requests without a first token; None: another engine starts."""
        self._queues = {} if queues is None else {queue.tenant: queue for queue in queues.queues}
        self._reported_s = None if queues is None else now_s

    def target_s(self, request: OpenRequest, tenant: TenantRecord) -> float:
        """The TTFT target, as far as it is known before the engine says."""
        if request.body_bytes is None:
            return math.inf
        new_tokens = self._expected.input_tokens(request.tenant, request.body_bytes)
        return self.slo_of(request, tenant).ttft_target_s(new_tokens)

    @staticmethod
    def slo_of(request: OpenRequest, tenant: TenantRecord) -> Slo:
        """The objectives of a request: its tenant's, but for targets of its own."""
        return tenant.slo if request.targets is None else request.targets.applied_to(tenant.slo)

    def own_tbt_targets_s(self) -> list[float]:
        """TBT targets of the open requests that have one of their own."""
        targets = (one.targets for one in tuple(self._open.values()) if one.targets is not None)
        return [each.tbt_s for each in targets if each.tbt_s is not None]

    def without_a_token(self) -> list[OpenRequest]:
        """Requests that are streamed and have had nothing yet; of others only the engine knows."""
        return [one for one in tuple(self._open.values()) if one.first_s is None and one.is_streamed]

    def counts(self, tenants: Mapping[str, TenantRecord], now_s: float) -> dict[str, OpenCounts]:
        """Counts by tenant, of those in `tenants` that have anything open."""
        found: dict[str, OpenCounts] = {}
        for _ in self.counting(tenants, now_s, found):
            pass
        return found

    def counting(
        self, tenants: Mapping[str, TenantRecord], now_s: float, found: dict[str, OpenCounts]
    ) -> Iterator[None]:
        """Put the same into `found`, a few requests with each step; it is complete only after the last."""
        tallies: dict[str, _Tally] = {}
        # A copy: metrics are read in another thread.
        for number, request in enumerate(tuple(self._open.values()), start=1):
            if number % COUNTED_AT_ONCE == 0:
                yield
            tenant = tenants.get(request.tenant)
            if tenant is None:
                continue
            tally = tallies.get(request.tenant)
            if tally is None:
                tally = tallies[request.tenant] = _Tally()
            until_s = now_s if request.first_s is None else request.first_s
            waited_s = until_s - request.arrived_s
            late = waited_s > self.target_s(request, tenant)
            if request.is_sent and not request.is_streamed:
                tally.whole += 1
                tally.whole_late += late
                tally.whole_oldest_s = max(tally.whole_oldest_s, waited_s)
            elif request.first_s is not None:
                tally.begun += 1
                tally.begun_late += late
            else:
                tally.waiting += 1
                tally.late += late
                tally.oldest_s = max(tally.oldest_s, waited_s)
        for number, (name, tally) in enumerate(tallies.items(), start=1):
            found[name] = self._settled(name, tally, now_s)
            if number % COUNTED_AT_ONCE == 0:
                yield

    def _settled(self, name: str, tally: _Tally, now_s: float) -> OpenCounts:
        """Add the answers that are not streamed: at most those of which the engine says so."""
        whole, late, oldest_s = tally.whole, tally.whole_late, tally.whole_oldest_s
        if self._reported_s is None:
            late = 0  # no engine has said whether they have begun
        elif now_s - self._reported_s <= REPORT_HOLDS_S:
            queue = self._queues.get(name)
            whole = min(whole, max(0, queue.waiting - tally.waiting)) if queue else 0
            late = min(late, max(0, queue.late - tally.late)) if queue else 0
            oldest_s = min(oldest_s, queue.oldest_wait_s) if queue and whole else 0.0
        return OpenCounts(
            waiting=tally.waiting + whole,
            late=tally.late + late,
            oldest_wait_s=max(tally.oldest_s, oldest_s if whole else 0.0),
            begun=tally.begun,
            begun_late=tally.begun_late,
        )


def summed(counts: Iterable[OpenCounts]) -> OpenCounts:
    """The sum of all tenants."""
    waiting = late = begun = begun_late = 0
    oldest_s = 0.0
    for each in counts:
        waiting, late = waiting + each.waiting, late + each.late
        begun, begun_late = begun + each.begun, begun_late + each.begun_late
        oldest_s = max(oldest_s, each.oldest_wait_s)
    return OpenCounts(waiting=waiting, late=late, oldest_wait_s=oldest_s, begun=begun, begun_late=begun_late)


def gauges(waiting: Mapping[str, OpenCounts], in_flight: Mapping[str, int]) -> Iterator[tuple[str, Gauges]]:
    """What the history keeps of the moment, by tenant that has requests at the engine or at the gateway."""
    for name in {*waiting, *in_flight}:
        counts = waiting.get(name, NOTHING_OPEN)
        yield (
            name,
            Gauges(
                waiting=counts.waiting,
                late=counts.late,
                oldest_wait_s=counts.oldest_wait_s,
                in_flight=in_flight.get(name, 0),
            ),
        )
