"""The emulated device: two streams on disjoint SMs that share HBM bandwidth, as a fluid model.

Work is measured in seconds that it would take alone on its SMs. While both streams are busy each runs
slower: decode by the bandwidth that the two ask for beyond what there is, and by interference, a part of it
fixed, a part in proportion to prefill's SMs and a part to its traffic; prefill, which is bound by compute
(DRIFT principle 1), by interference in proportion to decode's traffic and to the root of decode's share of
the SMs. MuxWise figure 11 gives the range of decode: up to 30% on H100. One H200 (Llama-8B, 2026-11-21):
decode 10 to 30%, prefill 13 to 47%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_DONE_S = 1e-9
"""Work below this is rounding error of a clock that counts hours."""


@dataclass(slots=True)
class Stream:
    """One stream: how much solo-run work is queued, on how many SMs, and what bandwidth it asks for."""

    remaining_s: float = 0.0
    sms: int = 0
    bytes_per_s: float = 0.0
    busy_sm_s: float = 0.0
    """SM-seconds occupied since the start."""

    @property
    def is_busy(self) -> bool:
        """Whether there is work queued."""
        return self.remaining_s > _DONE_S


class Device:
    """Advances both streams through time. Decode, or a fused batch, runs on `decode`; layers on `prefill`."""

    def __init__(
        self,
        *,
        bytes_per_s: float,
        contention_ratio: float,
        decode_colocated_ratio: float = 0.0,
        decode_colocated_sms_ratio: float = 0.0,
        prefill_colocated_ratio: float | None = None,
    ) -> None:
        """The ratios are the Profile's."""
        self.prefill = Stream()
        self.decode = Stream()
        self._bytes_per_s = bytes_per_s
        self._decode_ratios = (decode_colocated_ratio, decode_colocated_sms_ratio, contention_ratio)
        """Fixed, per share of the SMs, and per share of the bandwidth."""
        self._prefill_ratio = prefill_colocated_ratio
        self._decode_slowdown = 1.0
        self._prefill_slowdown = 1.0
        self._throttle_ratio = 1.0

    def launch(self, stream: Stream, *, solo_s: float, sms: int, hbm_bytes: float) -> None:
        """Queue work; it asks for `hbm_bytes / solo_s` of bandwidth while it runs."""
        stream.remaining_s += solo_s
        stream.sms = sms
        stream.bytes_per_s = hbm_bytes / solo_s if solo_s > 0.0 else 0.0
        self._contend()

    def throttle(self, ratio: float) -> None:
        """Run everything `ratio` times slower from now on."""
        self._throttle_ratio = ratio
        self._contend()

    def cancel(self, stream: Stream) -> None:
        """Drop what is queued."""
        stream.remaining_s = 0.0
        self._contend()

    def decode_done_in_s(self) -> float:
        """Seconds until the decode stream is empty, if prefill goes on; 0 if it is empty."""
        return self._done_in_s(self.decode, self._decode_slowdown, self.prefill, self._prefill_slowdown)

    def prefill_done_in_s(self) -> float:
        """Seconds until the prefill stream is empty, if decode goes on; 0 if it is empty."""
        return self._done_in_s(self.prefill, self._prefill_slowdown, self.decode, self._decode_slowdown)

    def run(self, duration_s: float) -> None:
        """Let time pass."""
        left_s = duration_s
        while left_s > 0.0:
            both = self.prefill.is_busy and self.decode.is_busy
            part_s = left_s
            if both:
                part_s = min(
                    left_s,
                    self.prefill.remaining_s * self._prefill_slowdown,
                    self.decode.remaining_s * self._decode_slowdown,
                )
            self._run_stream(self.prefill, part_s, self._prefill_slowdown)
            self._run_stream(self.decode, part_s, self._decode_slowdown)
            if not both:
                break
            left_s -= part_s
            self._contend()

    def _done_in_s(self, stream: Stream, slowdown: float, other: Stream, other_slowdown: float) -> float:
        if not stream.is_busy:
            return 0.0
        alone = self._throttle_ratio
        if not other.is_busy:
            return stream.remaining_s * alone
        together_s = min(stream.remaining_s * slowdown, other.remaining_s * other_slowdown)
        return together_s + max(0.0, stream.remaining_s - together_s / slowdown) * alone

    @staticmethod
    def _run_stream(stream: Stream, duration_s: float, slowdown: float) -> None:
        if not stream.is_busy:
            stream.remaining_s = 0.0
            return
        took_s = min(duration_s, stream.remaining_s * slowdown)
        stream.busy_sm_s += took_s * stream.sms
        stream.remaining_s -= took_s / slowdown
        if stream.remaining_s <= _DONE_S:
            stream.remaining_s = 0.0

    def _contend(self) -> None:
        """Set the slowdowns for the work that is queued now."""
        self._decode_slowdown = self._prefill_slowdown = self._throttle_ratio
        if not (self.prefill.is_busy and self.decode.is_busy):
            return
        prefill_share = min(1.0, self.prefill.bytes_per_s / self._bytes_per_s)
        decode_share = min(1.0, self.decode.bytes_per_s / self._bytes_per_s)
        overcommit = max(1.0, prefill_share + decode_share)
        decode_sms_share = self.decode.sms / (self.prefill.sms + self.decode.sms)
        fixed, per_sms, per_share = self._decode_ratios
        interference = fixed + per_sms * (1.0 - decode_sms_share) + per_share * prefill_share
        self._decode_slowdown *= overcommit * (1.0 + interference)
        if self._prefill_ratio is None:
            self._prefill_slowdown *= 1.0 + per_share * decode_share
        else:
            self._prefill_slowdown *= 1.0 + self._prefill_ratio * decode_share * math.sqrt(decode_sms_share)


def layers_left(remaining_s: float, layer_s: float) -> int:
    """Layers of queued work that have not finished, the running one included."""
    return math.ceil(remaining_s / layer_s - 1e-9) if remaining_s > _DONE_S else 0
