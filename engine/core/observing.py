"""How an observation is made of what the engine holds: by the loop at each safe point, and for a question.

Whoever asks what a policy would do builds its observation here too, so that it is hidden from the policy what
the loop would hide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.types import (
    DecodeShape,
    DecodingRequest,
    EngineLimits,
    Observation,
    PrefillMode,
    PrefillView,
    WaitingRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """How many waiting requests the policy does not see or may not begin, by reason; each has one."""

    policy_change: int = 0
    """Another policy waits for the prefill under way, and nothing is begun until it is in force."""
    kv_denied: int = 0
    """The engine had no KV for them, and has given back none since."""
    long_prompt: int = 0
    """Memory does not hold the prompt whole, and a prefill by layers is under way."""
    beyond_window: int = 0
    """More wait than an observation shows."""


NOTHING_HIDDEN = Hidden()


def hidden(
    queue: Sequence[WaitingRequest],
    *,
    queue_length: int,
    limits: EngineLimits,
    denied: Collection[str] = (),
    is_layerwise: bool = False,
    is_changing: bool = False,
) -> Hidden:
    """Why `observation` leaves out those that wait, of which `queue` is the window."""
    if is_changing:
        return Hidden(policy_change=queue_length)
    refused = sum(one.request_id in denied for one in queue)
    long = sum(not limits.holds(one.new_tokens) and one.request_id not in denied for one in queue)
    return Hidden(
        kv_denied=refused,
        long_prompt=long if is_layerwise else 0,
        beyond_window=max(0, queue_length - len(queue)),
    )


def observation(
    *,
    now_s: float,
    partition_id: int,
    decode: DecodeShape,
    tbt_target_s: float | None,
    last_token_s: float,
    queue: Sequence[WaitingRequest],
    queue_length: int,
    kv_free_tokens: int,
    limits: EngineLimits,
    settings_version: int,
    prefill: PrefillView | None = None,
    set_aside: tuple[PrefillView, ...] = (),
    denied: Collection[str] = (),
    is_queue_hidden: bool = False,
    decoding: tuple[DecodingRequest, ...] = (),
) -> Observation:
    """What a policy is shown. Of the queue, of which `queue` is the window, it does not see

    - anything, while the policy before is being replaced (`is_queue_hidden`);
    - who was `denied` KV a moment ago, and would be again;
    - prompts that memory does not hold whole, beside a prefill by layers: those run in fused steps, which
      wait for the layers under way, and nobody is preempted for them.
    """
    waiting = () if is_queue_hidden else tuple(queue)
    if denied:
        waiting = tuple(one for one in waiting if one.request_id not in denied)
    is_layerwise = bool(set_aside) or (prefill is not None and prefill.mode is PrefillMode.LAYERWISE)
    if is_layerwise and limits.max_whole_tokens is not None:
        waiting = tuple(one for one in waiting if limits.holds(one.new_tokens))
    return Observation(
        now_s=now_s,
        partition_id=partition_id,
        decode=decode,
        tbt_target_s=tbt_target_s,
        last_token_s=last_token_s,
        prefill=prefill,
        set_aside=set_aside,
        waiting=waiting,
        waiting_count=0 if is_queue_hidden else queue_length,
        kv_free_tokens=kv_free_tokens,
        limits=limits,
        settings_version=settings_version,
        decoding=decoding,
    )
