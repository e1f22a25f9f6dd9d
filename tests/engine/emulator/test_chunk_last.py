"""A step whose first tokens are for those with less slack than the prompt in chunks (emulated engine)."""

from __future__ import annotations

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.loop.requests import Target

SHORT = ("a", "b", "c", "d")


def request(name: str, arrival_s: float, input_tokens: int, output_tokens: int) -> EmulatedRequest:
    return EmulatedRequest(
        request_id=name,
        tenant="a",
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


def test_short_ones_do_not_wait_for_a_prompt_in_chunks_that_has_time() -> None:
    """A prompt of 20,000 tokens takes some 20 steps. Those that come meanwhile have their first token within
    three or four; the prompt is in time all the same, and all KV is given back."""
    engine = EmulatedEngine(profile=load_profile(DEFAULT_PROFILE), policy="auto:nosplit")
    engine.apply_settings(version=1, policy="auto:nosplit", slos={"a": Target(slo=DEFAULT_SLO, version=1)})
    made = {"decodes": request("decodes", 0.0, 100, 400), "long": request("long", 0.1, 20_000, 5)}
    made |= {name: request(name, 0.15 + 0.05 * n, 150, 20) for n, name in enumerate(SHORT)}
    for each in made.values():
        engine.advance(each.arrival_s)
        engine.submit(each, each.arrival_s)
    engine.advance(60.0)
    waited_s = {name: (r.first_token_s or 99.0) - r.arrival_s for name, r in made.items()}
    assert waited_s["long"] < DEFAULT_SLO.ttft_target_s(20_000)
    assert all(waited_s[name] < 0.15 for name in SHORT), waited_s
    assert waited_s["long"] > 0.5, "it was not in chunks while they came"
    assert engine.is_idle
    engine.check_integrity()
