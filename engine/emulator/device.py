"""The emulated device: two streams on disjoint SMs that share HBM bandwidth, as a fluid model.

A stream does its work in the order of the launches. Work is measured in seconds that it would take alone on
its SMs. While both streams are busy each runs slower: decode by the bandwidth that the two ask for beyond
what there is, and by interference, a part of it fixed, a part in proportion to prefill's SMs and a part to
its traffic; prefill, which is bound by compute (DRIFT principle 1), by interference in proportion to
decode's traffic and to the root of decode's share of the SMs. MuxWise figure 11 gives the range of decode:
up to 30% on H100. One H200 (Llama-8B, 2026-11-21): decode 10 to 30%, prefill 13 to 47%.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise, WorkKind

_DONE_S = 1e-9
"""Less work than this is a rounding error: the clock counts hours."""


@dataclass(slots=True, eq=False)
class Event:
    """A place in a stream."""

    at_s: float | None = None
    """When the device passed it; None until then."""


@dataclass(slots=True, eq=False)
class Work:
    """Work that was launched, with the events before and behind it."""

    left_s: float
    sms: int
    bytes_per_s: float
    after: Event | None = None
    """It does not begin before this was passed."""
    start: Event = field(default_factory=Event)
    end: Event = field(default_factory=Event)


class Stream:
    """One stream: what was launched on it and is not done, oldest first."""

    __slots__ = ("busy_sm_s", "current", "slowdown", "work")

    def __init__(self) -> None:
        self.work: deque[Work] = deque()
        self.current: Work | None = None
        """The oldest work, if it may run."""
        self.busy_sm_s = 0.0
        """SM-seconds occupied since the start."""
        self.slowdown = 1.0
        """Of the current work, at this moment."""

    @property
    def is_busy(self) -> bool:
        return bool(self.work)

    @property
    def done_in_s(self) -> float:
        """Seconds until the current work is done if nothing changes; infinity if there is none."""
        return self.current.left_s * self.slowdown if self.current is not None else math.inf


class Device:
    """Both streams and their time. Decode and fused steps run on `decode`, prefill layers on `prefill`."""

    def __init__(
        self,
        *,
        bytes_per_s: float,
        contention_ratio: float,
        decode_colocated_ratio: float = 0.0,
        decode_colocated_sms_ratio: float = 0.0,
        prefill_colocated_ratio: float | None = None,
        colocated_serving_ratio: float = 1.0,
        noise: DeviceNoise = NO_NOISE,
    ) -> None:
        self.now_s = 0.0
        self.prefill = Stream()
        self.decode = Stream()
        self.done = 0
        """Works done since the start."""
        self._bytes_per_s = bytes_per_s
        self._decode_ratios = (decode_colocated_ratio, decode_colocated_sms_ratio, contention_ratio)
        """Slowdowns of decode: fixed, per share of the SMs, and per share of the bandwidth."""
        self._prefill_ratio = prefill_colocated_ratio
        self._serving_ratio = colocated_serving_ratio
        self._throttle_ratio = 1.0
        self._noise = noise
        self._lasting = None if noise == NO_NOISE else noise.lasting()
        self._stalled_s = noise.stalling()

    def launch(
        self,
        stream: Stream,
        *,
        solo_s: float,
        sms: int,
        hbm_bytes: float,
        after: Event | None = None,
        of: tuple[WorkKind, int] = (WorkKind.DECODE, 0),
    ) -> Work:
        """Queue work; it asks for `hbm_bytes / solo_s` of bandwidth while it runs, which is not before the
        event `after` was passed. `of` is its kind and size, by which the device's noise goes."""
        if self._lasting is not None:
            solo_s = self._lasting(solo_s * self._noise.by_kind_ratio(*of)) + self._stalled_s(self.now_s)
        bytes_per_s = hbm_bytes / solo_s if solo_s > 0.0 else 0.0
        work = Work(left_s=solo_s, sms=sms, bytes_per_s=bytes_per_s, after=after)
        stream.work.append(work)
        if len(stream.work) == 1:
            self._begin(stream)
            self._contend()
        return work

    def throttle(self, ratio: float) -> None:
        """Run everything `ratio` times slower from now on."""
        self._throttle_ratio = ratio
        self._contend()

    def next_done_s(self) -> float:
        """When the next work is done; infinity if there is none."""
        return self.now_s + min(self.prefill.done_in_s, self.decode.done_in_s)

    def run_to(self, at_s: float) -> None:
        """Let time pass up to an instant; one in the past changes nothing."""
        while self.now_s < at_s:
            left_s = at_s - self.now_s
            done_in_s = min(self.prefill.done_in_s, self.decode.done_in_s)
            part_s = min(left_s, done_in_s)
            self._pass(part_s)
            # An instant that `next_done_s` said is met exactly.
            self.now_s = at_s if part_s == left_s else self.now_s + part_s
            if part_s >= done_in_s - _DONE_S:
                self._retire(self.prefill)
                self._retire(self.decode)
                self._begin(self.prefill)
                self._begin(self.decode)
                self._contend()

    def run_until(self, event: Event) -> float:
        """Let time pass until an event of work that was launched; that instant."""
        while event.at_s is None:
            self.run_to(max(self.next_done_s(), math.nextafter(self.now_s, math.inf)))
        return event.at_s

    def _pass(self, duration_s: float) -> None:
        for stream in (self.prefill, self.decode):
            work = stream.current
            if work is not None:
                work.left_s -= duration_s / stream.slowdown
                stream.busy_sm_s += duration_s * work.sms

    def _retire(self, stream: Stream) -> None:
        while stream.current is not None and stream.current.left_s <= _DONE_S:
            stream.work.popleft().end.at_s = self.now_s
            stream.current = None
            self.done += 1
            self._begin(stream)

    def _begin(self, stream: Stream) -> None:
        """The oldest work runs, if nothing that it waits for is under way."""
        if stream.current is not None or not stream.work:
            return
        work = stream.work[0]
        if work.after is None or work.after.at_s is not None:
            work.start.at_s = self.now_s
            stream.current = work

    def _contend(self) -> None:
        """Set the slowdowns of what runs now."""
        prefill_stream, decode_stream = self.prefill, self.decode
        prefill_stream.slowdown = decode_stream.slowdown = self._throttle_ratio
        prefill, decode = prefill_stream.current, decode_stream.current
        if prefill is None or decode is None:
            return
        prefill_share = min(1.0, prefill.bytes_per_s / self._bytes_per_s)
        decode_share = min(1.0, decode.bytes_per_s / self._bytes_per_s)
        overcommit = max(1.0, prefill_share + decode_share)
        decode_sms_share = decode.sms / (prefill.sms + decode.sms)
        fixed, per_sms, per_share = self._decode_ratios
        interference = fixed + per_sms * (1.0 - decode_sms_share) + per_share * prefill_share
        decode_stream.slowdown *= overcommit * (1.0 + interference) * self._serving_ratio
        if self._prefill_ratio is None:
            prefill_stream.slowdown *= 1.0 + per_share * decode_share
        else:
            prefill_stream.slowdown *= 1.0 + self._prefill_ratio * decode_share * math.sqrt(decode_sms_share)
