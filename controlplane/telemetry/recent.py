"""The load of the last minutes, in rings of fixed size: what decoded and was prefilled, and which requests.

One instant tells little: the same question asked twice within seconds saw a prefill of 6,600 and of 35,000
tokens/s. So questions are asked of a median and of a busy moment of the last minutes.
"""

from __future__ import annotations

from collections import deque

import msgspec

from pdmuxd.engine.link.messages import IterationRecord, RequestRecord

WINDOW_S = 300.0
"""How far back questions look."""
KEPT_SAMPLES = 600
"""One a second at most, so ten minutes."""
KEPT_REQUESTS = 5000
P50, P90 = 0.5, 0.9


class LoadSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last decode batch of a second, and its last prefill batch; 0 where there was none."""

    at_s: float
    """Unix time."""
    decode_bs: int
    context_tokens: int
    """Of each decoding request, on average."""
    prefill_new_tokens: int
    """Of the batch."""
    prefill_reused_tokens: int


_NOTHING = LoadSample(at_s=0.0, decode_bs=0, context_tokens=0, prefill_new_tokens=0, prefill_reused_tokens=0)


class EndedRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that ended, with what of it a forecast needs. Instants are Unix time."""

    tenant: str
    arrived_s: float
    ended_s: float
    new_tokens: int
    reused_tokens: int
    output_tokens: int
    ttft_s: float | None
    ttft_met: bool
    gaps: int
    gaps_met: int


class RecentLoad:
    """Written in one thread; `samples` and `requests` may be called in any."""

    def __init__(self) -> None:
        self._samples: deque[LoadSample] = deque(maxlen=KEPT_SAMPLES)
        self._requests: deque[EndedRequest] = deque(maxlen=KEPT_REQUESTS)
        self._second = -1

    def on_iteration(self, record: IterationRecord, at_s: float) -> None:
        """A step: of each second the last is kept, which favours no kind of step."""
        if not record.decode_bs and not record.prefill_new_tokens:
            return
        second = int(at_s)
        is_same = second == self._second and bool(self._samples)
        before = self._samples.pop() if is_same else _NOTHING
        self._second = second
        bs, prefills = record.decode_bs, record.prefill_new_tokens > 0
        prefilled = record if prefills else before
        self._samples.append(
            LoadSample(
                at_s=at_s,
                decode_bs=bs or before.decode_bs,
                context_tokens=record.decode_reused_tokens // bs if bs else before.context_tokens,
                prefill_new_tokens=prefilled.prefill_new_tokens,
                prefill_reused_tokens=prefilled.prefill_reused_tokens,
            )
        )

    def on_request(self, record: RequestRecord, *, arrived_s: float | None, now_s: float) -> None:
        """A request ended; without the gateway's word on its arrival, that is taken from its own times."""
        since_s = record.ttft_s or record.queue_s or 0.0
        self._requests.append(
            EndedRequest(
                tenant=record.tenant,
                arrived_s=now_s - since_s if arrived_s is None else arrived_s,
                ended_s=now_s,
                new_tokens=record.new_tokens,
                reused_tokens=record.reused_tokens,
                output_tokens=record.output_tokens,
                ttft_s=record.ttft_s,
                ttft_met=record.ttft_s is not None and record.ttft_s <= record.ttft_target_s + 1e-9,
                gaps=record.tbt_gaps,
                gaps_met=record.tbt_gaps_met,
            )
        )

    def samples(self, now_s: float) -> tuple[LoadSample, ...]:
        """Samples of the last WINDOW_S, oldest first."""
        return tuple(one for one in tuple(self._samples) if one.at_s >= now_s - WINDOW_S)

    def requests(self, now_s: float) -> tuple[EndedRequest, ...]:
        """Requests that arrived within the last WINDOW_S, in the order of their ends."""
        return tuple(one for one in tuple(self._requests) if one.arrived_s >= now_s - WINDOW_S)
