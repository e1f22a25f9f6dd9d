"""What `pla` needs of the engine: samples of finished prefills, and a queue that long prompts do not clog."""

from __future__ import annotations

import pytest
from engines import PROFILE, engine, request, run_until_idle

from pdmuxd.engine.core.policies.pla import PlaPolicy
from pdmuxd.engine.core.types import EngineLimits, PrefillFeedback, PrefillSample


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[PrefillSample]:
    samples: list[PrefillSample] = []

    def remember(_self: PlaPolicy, feedback: PrefillFeedback, state: object) -> object:
        if feedback.sample is not None:
            samples.append(feedback.sample)
        return state

    monkeypatch.setattr(PlaPolicy, "learn_prefill", remember)
    return samples


def test_a_sample_has_the_terms_of_the_device_when_one_request_was_prefilled(
    learned: list[PrefillSample],
) -> None:
    emulated = engine("pla/muxwise")
    keys = tuple(range(1, 251))
    emulated.submit(request("a", 4000, 1, block_keys=keys), 0.0)
    emulated.submit(request("b", 4600, 1, arrival_s=5.0, block_keys=keys + tuple(range(900, 938))), 5.0)
    run_until_idle(emulated)
    assert [(s.new_tokens, s.reused_tokens) for s in learned] == [(4000, 0), (600, 4000)]
    assert learned[0] == PROFILE.truth.prefill_terms(4000, 0)


def test_a_sample_is_one_row_of_the_graph_when_a_graph_was_prefilled(learned: list[PrefillSample]) -> None:
    emulated = engine("pla/muxwise")
    for i, tokens in enumerate((600, 60, 50, 33)):
        emulated.submit(request(f"r{i}", tokens, 1), 0.0)
    run_until_idle(emulated)
    assert [(s.new_tokens, s.reused_tokens) for s in learned] == [(600, 0), (64, 0)]


def test_nothing_is_learned_when_a_batch_mixes_lengths(learned: list[PrefillSample]) -> None:
    emulated = engine("pla+nograph/muxwise")
    for i, tokens in enumerate((600, 60, 50, 33)):
        emulated.submit(request(f"r{i}", tokens, 1), 0.0)
    run_until_idle(emulated)
    assert [s.new_tokens for s in learned] == [600]


def test_terms_are_worked_out_by_hand_when_a_token_reads_one_other() -> None:
    # 32 layers of 218,103,808 weights, 1.5 pairs of 4 * 32 * 128 + 2 * 32 FLOPs; 2 tokens of 131,072 bytes.
    terms, device = PROFILE.truth.prefill_terms(1, 1), PROFILE.device
    flops = 32 * (2 * 218_103_808 + 1.5 * (4 * 32 * 128 + 2 * 32))
    assert terms.compute_s == pytest.approx(flops / device.flops)
    assert terms.memory_s == pytest.approx(2 * 131_072 / device.bytes_per_s)


def test_a_short_prompt_is_seen_when_the_window_is_full_of_long_ones() -> None:
    emulated = engine("pla/muxwise", limits=EngineLimits(waiting_window=8))
    for i in range(30):
        emulated.submit(request(f"long{i}", 8000, 1), 0.0)
    short = request("short", 100, 1, arrival_s=0.01)
    emulated.submit(short, 0.01)
    run_until_idle(emulated)
    assert short.first_token_s is not None
    assert short.first_token_s < 1.0
