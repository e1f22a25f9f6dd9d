"""Splits by one number as long as an engine runs, whichever policy has which in its own table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.link.messages import EngineStats, IterationRecord

Sizes = tuple[int, int]
"""(prefill SMs, decode SMs)."""
MessageT = TypeVar("MessageT", IterationRecord, EngineStats)


class SplitNumbers:
    """The groups that the engine named in its Hello, then those that were put in force since, as they are
    seen: what the engine sends is numbered by the policy in force, which another numbers otherwise."""

    def __init__(self, named: Sequence[Sizes], total_sms: int) -> None:
        self.sizes = tuple(named)
        self._numbers = {sizes: number for number, sizes in enumerate(named)}
        self._one_batch = (0, total_sms)

    def numbered(self, message: MessageT) -> MessageT:
        """The same with the number of its split; sizes that are none keep what the engine said."""
        sizes = message.prefill_sms, message.decode_sms
        if isinstance(message, IterationRecord) and message.mode in (Mode.FUSED, Mode.DECODE):
            sizes = self._one_batch
        number = self._numbers.get(sizes)
        if number is None:
            if not all(sizes):
                return message
            number = self._numbers[sizes] = len(self.sizes)
            self.sizes = (*self.sizes, sizes)
        if number == message.partition_id:
            return message
        return msgspec.structs.replace(message, partition_id=number)
