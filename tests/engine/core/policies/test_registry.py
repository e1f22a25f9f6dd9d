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
        ("muxwise:fast", "options are preempt, noguard, whole, blocking"),
    ],
)
def test_what_is_allowed_is_told_when_an_argument_is_wrong(spec: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        parse_policy(spec)


def test_the_device_has_its_say_when_a_split_is_impossible() -> None:
    with pytest.raises(PartitionError, match="partition 100,50 is not possible on 132 SMs"):
        build_policy("static:100,50", linear_context())
