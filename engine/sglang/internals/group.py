"""The streams that launches go to, and what a launch on one must wait for on the other."""

from __future__ import annotations

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Event, Stream
from pdmuxd.engine.sglang.api.types.requests import Batch
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.streams.base import LaunchStreams


class GroupInForce:
    """The partition group of what is launched next."""

    def __init__(self, scheduler: Scheduler, streams: LaunchStreams) -> None:
        self._s = scheduler
        self._set_stream_index = sglang().streams.set_current_stream_idx
        self._streams = streams
        self._prefill_not_before: Event = None
        """The end of a step that a new prefill on the other stream must wait for: the step still writes KV
        slots that were given back, or it uses the prefill attention backend."""
        self.last_end: Event = None
        """Of the decode or fused step launched last."""
        self.attention_owner: Batch | None = None
        """The prefill batch whose metadata the prefill attention backend holds."""
        self.index = 0
        self.use(0)

    @property
    def prefill(self) -> Stream:
        return self._streams.groups[self.index].prefill

    @property
    def decode(self) -> Stream:
        return self._streams.groups[self.index].decode

    def use(self, index: int) -> None:
        """Put the streams of a group in force.

        Nothing is drained: the new streams wait on the device for what the old ones hold, so whatever is
        launched next comes after what it depends on (invariant 2).
        """
        old, new = self._streams.groups[self.index], self._streams.groups[index]
        if new is not old:
            self._streams.order(new.decode, old.decode)
            self._streams.order(new.prefill, old.prefill)
        self.index = index
        self._set_stream_index(index)
        self._s.tp_worker.model_runner.update_decode_attn_backend(index)
        self._s.forward_stream = new.decode
        self._s.forward_stream_ctx = self._streams.on(new.decode)

    def hold_prefill(self) -> None:
        """The next prefill must not start before the step launched last is over."""
        self._prefill_not_before = self.last_end

    def order_prefill(self) -> None:
        """Make the prefill stream wait, from here on, for the step that must be over first."""
        if self._prefill_not_before is not None:
            self._streams.order_after(self.prefill, self._prefill_not_before)
            self._prefill_not_before = None
