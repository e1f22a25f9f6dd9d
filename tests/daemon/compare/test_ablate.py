from __future__ import annotations

import pytest

from pdmuxd.daemon.compare.ablate import SWITCHES, variants, with_ablations
from pdmuxd.engine.core.policies.registry import build_policy, known_policies
from pdmuxd.engine.emulator.profile import load_profile

CONTEXT = load_profile("h200-llama-8b").policy_context


@pytest.mark.parametrize("name", SWITCHES)
def test_every_variant_can_be_built_when_a_policy_has_switches(name: str) -> None:
    assert len(variants(name)) == len(SWITCHES[name])
    for variant in variants(name):
        assert build_policy(variant, CONTEXT).name == variant


@pytest.mark.parametrize("info", known_policies(), ids=lambda info: info.name)
def test_a_policy_without_switches_stays_alone_when_ablated(info) -> None:
    found = with_ablations([info.example])
    assert found[0] == info.example
    assert (len(found) > 1) == (info.name in SWITCHES)


def test_options_that_are_given_stay_when_one_more_is_switched_off() -> None:
    assert variants("muxwise:preempt") == (
        "muxwise:preempt+noguard",
        "muxwise:preempt+whole",
        "muxwise:preempt+blocking",
    )
    assert variants("muxwise:whole") == ("muxwise:whole+noguard", "muxwise:whole+blocking")
    assert variants("duet:4096") == ("duet:4096+nolookahead",)
    assert variants("pla+nograph/static:96,36") == ("pla+nograph+nodeadline/static:96,36",)
    assert variants("duet") == ("duet:8192+nolookahead",)


def test_nothing_is_run_twice_when_a_variant_was_asked_for_itself() -> None:
    assert with_ablations(["drift:whole", "drift"]).count("drift:whole") == 1
