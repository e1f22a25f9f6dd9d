"""Decode and fused steps on the device: each is launched before the result of the one before is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.types import NO_DECODE, Decision, DecodeShape, Mode, PrefillShape
from pdmuxd.engine.link.messages import StallCause
from pdmuxd.engine.loop.port import EnginePort, LaunchedStep
from pdmuxd.engine.loop.streams import DeviceStreams


@dataclass(slots=True, eq=False, kw_only=True)
class Step:
    """A step on the decode stream, the engine's and ours."""

    launched: LaunchedStep
    decision: Decision
    prefill_sms: int
    decode_sms: int
    decode: DecodeShape
    previous_end: Any
    """End event of the step before it, if that was still in flight: the gap is counted from there."""
    prefill: PrefillShape | None = None
    """The prefill beside it, or the prompt tokens in it."""
    prefill_layers: int = 0
    """Layers launched beside it."""
    was_awaited: bool = False
    """Whether the device was done with the step before it when this one had been launched."""
    host_s: Mapping[StallCause, float] = field(default_factory=dict)
    """What the host did since the launch before, by what a stall would be charged to."""
    decided_by: AnyPolicy | None = None
    """Whose groups the decision indexes: another policy may be in force once the step is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """Device time of a step that was read."""

    gap_s: float
    """From the end of the step before, if that was in flight when this one was launched."""
    busy_s: float
    """Of that, without what passed until a late launch came."""
    host_late_s: float | None = None
    """Device time without a step on the decode stream because the host had not launched this one; None if the
    step before was not in flight. What waits on the device, as for layers before another group, is none."""
    stall_s: float = 0.0
    """What it took beyond what was expected of it, if it stalled (engine/loop/stalls.py)."""
    stall_cause: StallCause | None = None


class DecodeStage:
    """Launches steps, and reads them in the order of their launches."""

    def __init__(self, port: EnginePort, streams: DeviceStreams) -> None:
        self._port = port
        self._streams = streams
        self._unread: deque[Step] = deque()
        self.busy_decode_sm_s = 0.0
        """SM-seconds of the steps measured, but for what prompt tokens took of fused ones."""
        self.busy_prefill_sm_s = 0.0
        """What prompt tokens took of fused steps."""

    def __len__(self) -> int:
        """Steps that were not read."""
        return len(self._unread)

    @property
    def in_flight(self) -> Step | None:
        """The step launched last, if it was not read."""
        return self._unread[-1] if self._unread else None

    @property
    def next_end(self) -> Any:
        """The event behind the oldest step that was not read."""
        return self._unread[0].launched.end if self._unread else None

    @property
    def has_news(self) -> bool:
        """Whether the device is done with the oldest step that was not read; never blocks."""
        return bool(self._unread) and self._streams.is_done(self._unread[0].launched.end)

    def launch(self, decision: Decision, sits_out: Collection[str] = ()) -> Step | None:
        """One decode step, the caller says beside what; None if nothing is left to decode."""
        port = self._port
        if not port.state.running:
            return None
        shape = port.state.decode_shape(sits_out)
        return self._note(port.decode.launch_decode(sits_out), decision, shape)

    def launch_fused(self, decision: Decision, sits_out: Collection[str] = ()) -> Step | None:
        """One batch of both; the caller says which prompt tokens it holds. None if it would be empty."""
        port, decodes = self._port, decision.decode_steps > 0
        shape = port.state.decode_shape(sits_out) if decodes else NO_DECODE
        launched = port.decode.launch_fused(
            decision.admit,
            decision.token_budget,
            decision.prefill_graph,
            decodes=decodes,
            chunk_waits=decision.preempt,
            chunk_last=decision.chunk_last,
            without=sits_out,
        )
        return self._note(launched, decision, shape)

    def nothing_launched(self) -> None:
        """This turn launched no step."""
        self._port.decode.nothing_launched()

    def settle(self) -> None:
        """Let those whose prompt the last fused step completed join the batch; what has ended leaves it."""
        self._port.decode.settle()

    def wait(self) -> None:
        """Block until the device is done with the oldest step that was not read."""
        self._port.decode.wait(self._unread[0].launched)

    def read(self) -> Step:
        """The tokens of the oldest step that was not read go to the engine's requests."""
        step = self._unread.popleft()
        self._port.decode.read(step.launched)
        return step

    def measure(self, step: Step) -> StepTiming:
        """What a step took that was read; its SMs' time is counted."""
        streams, launched = self._streams, step.launched
        busy_s = streams.elapsed_s(launched.start, launched.end)
        self._account(step, busy_s)
        if step.previous_end is None:
            return StepTiming(gap_s=busy_s, busy_s=busy_s)
        gap_s = streams.elapsed_s(step.previous_end, launched.end)
        busy_s = min(gap_s, busy_s)
        return StepTiming(gap_s=gap_s, busy_s=busy_s, host_late_s=gap_s - busy_s if step.was_awaited else 0.0)

    def _note(
        self,
        launched: LaunchedStep | None,
        decision: Decision,
        shape: DecodeShape,
    ) -> Step | None:
        if launched is None:
            return None
        group = self._streams.groups[self._port.stream_group]
        previous_end = self._unread[-1].launched.end if self._unread else None
        step = Step(
            launched=launched,
            decision=decision,
            prefill_sms=group.prefill_sms,
            decode_sms=group.decode_sms,
            decode=shape,
            previous_end=previous_end,
            was_awaited=previous_end is not None and self._streams.is_done(previous_end),
        )
        self._unread.append(step)
        return step

    def _account(self, step: Step, busy_s: float) -> None:
        sms = step.decode_sms
        prefill_tokens = step.prefill.new_tokens if step.prefill is not None else 0
        if step.decision.mode is Mode.FUSED and prefill_tokens:
            share = prefill_tokens / (prefill_tokens + step.decode.bs)
            self.busy_prefill_sm_s += busy_s * sms * share
            self.busy_decode_sm_s += busy_s * sms * (1.0 - share)
        else:
            self.busy_decode_sm_s += busy_s * sms
