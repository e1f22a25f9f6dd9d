"""What the loop needs of a device: two streams per partition group, and events on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGroup:
    """The streams of one partition group, with the SMs that each really has."""

    prefill_sms: int
    decode_sms: int
    prefill: Any
    decode: Any


class DeviceStreams(Protocol):
    """The streams of all groups of a partition table, made before serving."""

    @property
    def groups(self) -> tuple[StreamGroup, ...]:
        """Streams by group index: PREFILL_ONLY first, DECODE_ONLY last."""

    def is_done(self, event: Any) -> bool:
        """Whether the device has passed the event. Never blocks."""

    def wait(self, event: Any) -> None:
        """Block the calling thread until the device has passed the event."""

    def elapsed_s(self, start: Any, end: Any) -> float:
        """Seconds of device time between two events that it has passed."""
