from __future__ import annotations

import pytest
from observations import linear_context

from pdmuxd.engine.core.errors import PartitionError, PolicyError
from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY, build_policy, known_policies, parse_policy


def test_every_known_policy_can_be_built_when_its_example_is_given() -> None:
    for info in known_policies():
        assert build_policy(info.example, linear_context()).name == info.example
    assert DEFAULT_POLICY in {info.name for info in known_policies()}


def test_the_known_ones_are_listed_when_a_policy_is_unknown() -> None:
    with pytest.raises(
        PolicyError,
        match=r"unknown policy 'mux'; known are auto.*, muxwise.*, chunked:N, .*upstream, static:P,D",
    ):
        parse_policy("mux")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("chunked", "give a token budget from 16 to 131072"),
        ("chunked:15", "give a token budget from 16 to 131072"),
        ("chunked:-5", "give a token budget"),
        ("chunked:٣٢", "give a token budget"),
        ("static:96", "give prefill SMs and decode SMs"),
        ("static:a,b", "give prefill SMs and decode SMs"),
        ("upstream:3", "it takes no arguments"),
        ("chunked:131073", "give a token budget from 16 to 131072"),
        ("muxwise:fast", "options are preempt, noguard, whole, blocking"),
        (
            "auto:fast",
            "options are nopreempt, nonest, noguard, nolookahead, noclasses, nosplit, nofuse, fcfs",
        ),
        ("auto:nosplit+nofuse", "together leave no way to prefill"),
        ("slack", "name one policy that it goes before"),
        ("edf/slack/muxwise", "name one policy that it goes before"),
        ("slack/mux", "unknown policy 'mux'"),
        ("auto:fcfs+fast", "options are nopreempt"),
    ],
)
def test_what_is_allowed_is_told_when_an_argument_is_wrong(spec: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        parse_policy(spec)


@pytest.mark.parametrize("budget", [16, 131072])
def test_the_bounds_themselves_are_allowed_when_a_budget_is_given(budget: int) -> None:
    assert build_policy(f"chunked:{budget}", linear_context()).name == f"chunked:{budget}"


def test_the_device_has_its_say_when_a_split_is_impossible() -> None:
    with pytest.raises(PartitionError, match="partition 100,50 is not possible on 132 SMs"):
        build_policy("static:100,50", linear_context())


@pytest.mark.parametrize(
    ("asked", "unsplit"),
    [
        ("auto", "auto:nosplit"),
        ("auto:nofuse+fcfs", "auto:nosplit+fcfs"),
        ("auto:fcfs+nosplit", "auto:fcfs+nosplit"),
        ("muxwise", "auto:nosplit+fcfs+noclasses+nopreempt"),
        ("muxwise:preempt+noguard", "auto:nosplit+fcfs+noclasses"),
        ("drift", "auto:nosplit+fcfs+noclasses"),
        ("drift:nopreempt", "auto:nosplit+fcfs+noclasses+nopreempt"),
        ("edf/static:96,36", "edf/auto:nosplit+fcfs+noclasses+nopreempt"),
        ("pla+nograph/muxwise", "pla+nograph/auto:nosplit+fcfs+noclasses+nopreempt"),
        ("pla", "pla/auto:nosplit+fcfs+noclasses+nopreempt"),
        ("slack/pla/auto", "slack/pla/auto:nosplit"),
        ("pla/chunked:256", "pla/chunked:256"),
        ("prefill-first:512", "prefill-first:512"),
    ],
)
def test_the_order_of_the_queue_is_kept_when_nothing_can_be_split(asked, unsplit):
    spec = parse_policy(asked)
    assert (spec.unsplit, spec.may_split) == (unsplit, asked != unsplit)
    assert not parse_policy(unsplit).may_split
    assert build_policy(unsplit, linear_context()).name == unsplit


@pytest.mark.parametrize("info", known_policies(), ids=lambda info: info.name)
def test_every_policy_says_what_is_in_force_when_nothing_can_be_split(info):
    unsplit = parse_policy(parse_policy(info.example).unsplit)
    assert not unsplit.may_split
