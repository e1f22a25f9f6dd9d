"""How long each partition group was used, and for how many tokens, since the engine started."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.types import Mode, Reason
from pdmuxd.engine.link.messages import IterationRecord


@dataclass(slots=True, kw_only=True)
class GroupUse:
    """The sum over the steps of a group, or over those of one batch; prefill tokens are an estimate."""

    time_s: float = 0.0
    decisions: int = 0
    prefill_tokens: float = 0.0
    decode_tokens: int = 0


class PartitionUse:
    """Written in one thread; `snapshot` may be called in any."""

    def __init__(self) -> None:
        self.layers = 0
        """Of the model; 0 while that is not known, and then layer-wise prefill tokens are not counted."""
        self._groups: dict[tuple[int, int], GroupUse] = {}
        """By (prefill SMs, decode SMs): another policy numbers its groups otherwise."""
        self._fused = GroupUse()
        self._decode = GroupUse()

    def forget(self) -> None:
        """Another engine starts."""
        self._groups = {}
        self._fused = GroupUse()
        self._decode = GroupUse()

    def add(self, record: IterationRecord) -> None:
        """Count one step; a prefill that ends beside decode was counted with the steps that it ran beside."""
        if record.reason == Reason.PREFILL_FINISHED:
            return
        if record.mode == Mode.FUSED:
            use, prefill = self._fused, float(record.prefill_new_tokens)
        elif record.mode == Mode.DECODE:
            use, prefill = self._decode, 0.0
        else:
            use = self._groups.setdefault((record.prefill_sms, record.decode_sms), GroupUse())
            # A layer-wise batch is computed a few layers at a time, beside several decode steps.
            share = record.prefill_layers / self.layers if self.layers else 0.0
            prefill = record.prefill_new_tokens * share
        use.time_s += record.measured_step_s
        use.decisions += 1
        use.prefill_tokens += prefill
        use.decode_tokens += record.decode_bs * max(1, record.decode_steps)

    def snapshot(self) -> tuple[dict[tuple[int, int], GroupUse], GroupUse, GroupUse]:
        """(by the SMs of the group, fused, decode by itself in one batch)."""
        return dict(self._groups), self._fused, self._decode
