"""The streams of the emulated device: an event is passed when the device's clock is there."""

from __future__ import annotations

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.partitions import Partition, PartitionTable
from pdmuxd.engine.emulator.device import Device, Event, Stream
from pdmuxd.engine.loop.streams import StreamGroup


class EmulatedStreams:
    """Implements DeviceStreams. The device can make any split at any time: groups are made as asked for."""

    def __init__(self, device: Device, total_sms: int) -> None:
        self._device = device
        self._groups = [
            _group(device, Partition(prefill_sms=total_sms, decode_sms=0)),
            _group(device, Partition(prefill_sms=0, decode_sms=total_sms)),
        ]
        self._made = {(group.prefill_sms, group.decode_sms): i for i, group in enumerate(self._groups)}
        self.groups: tuple[StreamGroup, ...] = tuple(self._groups)
        """All SMs for prefill, all for decode, then splits in the order in which they were asked for."""

    def made_for(self, table: PartitionTable) -> tuple[int, ...]:
        """Streams with the sizes of each group of a policy's table."""
        for group in table.groups:
            sizes = (group.prefill_sms, group.decode_sms)
            if sizes not in self._made:
                self._made[sizes] = len(self._groups)
                self._groups.append(_group(self._device, group))
        self.groups = tuple(self._groups)
        return tuple(self._made[group.prefill_sms, group.decode_sms] for group in table.groups)

    def is_done(self, event: Event) -> bool:
        return event.at_s is not None

    def wait(self, event: Event) -> None:
        """Let time pass until the device has passed the event."""
        self._device.run_until(event)

    def elapsed_s(self, start: Event, end: Event) -> float:
        """Seconds between two events that it has passed."""
        if start.at_s is None or end.at_s is None:
            raise EngineInvariantError("time was measured to an event that the device has not passed")
        return end.at_s - start.at_s


def _group(device: Device, sizes: Partition) -> StreamGroup:
    prefill: Stream = device.prefill
    return StreamGroup(
        prefill_sms=sizes.prefill_sms, decode_sms=sizes.decode_sms, prefill=prefill, decode=device.decode
    )
