"""What `arms` says of a run, and of wrong options."""

from __future__ import annotations

import argparse

import pytest
from arms import load_of, targets_of
from served import HELD_OUT, SERVED, arrivals, cell, device

from pdmuxd.engine.emulator.noise import NO_NOISE
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, load_profile

SHIPPED = load_profile(DEFAULT_PROFILE)


def test_the_served_device_has_the_engines_splits() -> None:
    splits = device(SERVED).context().table().splits
    assert [(split.prefill_sms, split.decode_sms) for split in splits][:: len(splits) - 1] == [
        (124, 8),
        (52, 80),
    ]


@pytest.mark.parametrize("kind", HELD_OUT)
def test_a_held_out_load_is_the_same_for_the_same_seed(kind: str) -> None:
    def lengths(seed: int) -> list[tuple[int, int]]:
        return [(r.input_tokens, r.output_tokens) for r in arrivals(kind, 5.0, 20.0, seed)]

    assert lengths(1) == lengths(1) != lengths(2)


@pytest.mark.slow
def test_a_run_in_time_has_no_lateness_and_a_flood_has() -> None:
    calm = cell("auto", arrivals("held-documents", 0.5, 20.0, 1), SHIPPED, NO_NOISE, 0.05)
    assert (calm.good, calm.late_p99_s) == (100.0, 0.0)
    flood = cell("auto", arrivals("held-documents", 60.0, 5.0, 1), SHIPPED, NO_NOISE, 0.05)
    assert flood.good < 90.0
    assert flood.late_p99_s > 1.0


@pytest.mark.slow
def test_a_loose_target_costs_no_goodput() -> None:
    """Before steps were bounded the queue of these grew from the first minute on, 93.8% at 200 ms."""
    load = arrivals("held-summaries", 11.8, 120.0, 1)
    assert cell("auto", load, device(SERVED), NO_NOISE, 0.2).good >= 99.5


@pytest.mark.parametrize("text", ["chat", "chat:0", "chat:nan", "poems:5", "chat:x", "chat:1e9"])
def test_a_wrong_load_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="KIND:RATE"):
        load_of(text)


@pytest.mark.parametrize("text", ["", "50,", "0", "nan", "1e9", "fast"])
def test_a_wrong_target_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="from 1 to 10,000"):
        targets_of(text)
