"""What a request is expected to have, by what its tenant's earlier ones had."""

from __future__ import annotations

import pytest

from pdmuxd.controlplane.telemetry.expected_tokens import ExpectedTokens
from pdmuxd.controlplane.tenants.token_use import Tokens


@pytest.fixture
def expected():
    return ExpectedTokens()


def test_a_tenant_that_is_not_known_writes_english_text(expected):
    assert expected.input_tokens("chat", 4000, count_cached=False) == 1000
    assert expected.output_tokens("chat", 2) == 256


def test_what_a_tenants_requests_had_is_expected_of_its_next(expected):
    expected.learn("chat", Tokens(input_tokens=100, cached_tokens=300, output_tokens=50), 1000)
    assert expected.input_tokens("chat", 500, count_cached=False) == 50
    assert expected.input_tokens("chat", 500, count_cached=True) == 200
    assert expected.output_tokens("chat", 3) == 150


def test_later_requests_weigh_more(expected):
    expected.learn("chat", Tokens(input_tokens=100), 1000)
    for _ in range(100):
        expected.learn("chat", Tokens(input_tokens=500), 1000)
    assert expected.input_tokens("chat", 1000, count_cached=False) == pytest.approx(500, abs=3)


def test_nothing_is_ever_expected_to_be_empty(expected):
    expected.learn("chat", Tokens(), 1000)
    assert expected.input_tokens("chat", 1, count_cached=True) == 1
    assert expected.output_tokens("chat", 4) == 4


def test_a_tenant_that_is_gone_is_forgotten_and_the_others_are_not(expected):
    for name in ("chat", "code"):
        expected.learn(name, Tokens(input_tokens=900), 1000)
    expected.keep({"code": None})
    assert expected.input_tokens("chat", 1000, count_cached=False) == 250
    assert expected.input_tokens("code", 1000, count_cached=False) == 900
