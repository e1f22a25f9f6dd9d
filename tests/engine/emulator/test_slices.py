"""Layers of long prompts in slices of tokens: how long urgent work waits, and that nothing is lost."""

from __future__ import annotations

from engines import Memory, engine, request, run_until_idle

from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.core.types import EngineLimits

LONG = 100_000
MOST_WAIT_S = 0.1
URGENT_S = tuple(1.0 + 0.37 * number for number in range(8))


def waits_s(limits: EngineLimits) -> tuple[list[float], float]:
    """How long urgent chats wait to begin beside a long prompt and decode, and when that prompt is done."""
    emulated = engine("auto", observer=Memory(), limits=limits)
    for number in range(8):
        emulated.submit(request(f"d{number}", 200, 3_000), 0.0)
    emulated.advance(0.5)
    long = request("long", LONG, 4, arrival_s=0.5)
    long.own_targets = RequestTargets(ttft_s=120.0)
    emulated.submit(long, 0.5)
    urgent = []
    for number, at_s in enumerate(URGENT_S):
        emulated.advance(at_s)
        chat = request(f"u{number}", 100, 4, arrival_s=at_s)
        chat.own_targets = RequestTargets(ttft_s=0.12)
        emulated.submit(chat, at_s)
        urgent.append(chat)
    run_until_idle(emulated)
    assert long.first_token_s is not None
    assert long.first_token_s > URGENT_S[-1], "not all came beside it"
    return [(chat.prefill_start_s or 0.0) - chat.arrival_s for chat in urgent], long.first_token_s


def test_urgent_chats_begin_soon_when_a_prompt_of_100_000_tokens_is_under_way() -> None:
    cut_s, done_s = waits_s(EngineLimits())
    whole_s, whole_done_s = waits_s(EngineLimits(least_slice_tokens=None))
    assert max(cut_s) <= MOST_WAIT_S
    assert max(whole_s) > 4.0, "who has missed its target behind a layer waits for the prompt"
    assert done_s <= 1.05 * whole_done_s
