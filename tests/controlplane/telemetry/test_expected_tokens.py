"""What a request is expected to have, by what its tenant's earlier ones had."""

from __future__ import annotations

import pytest
from telemetry_feeds import request_record

from pdmuxd.controlplane.telemetry.expected_tokens import ExpectedTokens


@pytest.fixture
def expected():
    return ExpectedTokens()


def test_a_tenant_that_is_not_known_writes_english_text(expected):
    assert expected.input_tokens("chat", 4000) == 1000


def test_what_a_tenants_requests_had_is_expected_of_its_next(expected):
    expected.on_read("r1", 1000)
    expected.on_record(request_record(request_id="r1", tenant="chat", new_tokens=100, reused_tokens=300))
    assert expected.input_tokens("chat", 500) == 50


def test_several_prompts_of_a_request_are_learned_one_by_one(expected):
    expected.on_read("r1", 1000)
    for number in (0, 1):
        expected.on_record(request_record(request_id=f"r1_{number}", tenant="chat", new_tokens=100))
    assert expected.input_tokens("chat", 500) == 50


def test_nothing_is_learned_of_a_request_whose_body_is_not_known(expected):
    expected.on_record(request_record(request_id="r1", tenant="chat", new_tokens=9))
    assert expected.input_tokens("chat", 4000) == 1000


def test_later_requests_weigh_more(expected):
    expected.learn("chat", 100, 1000)
    for _ in range(100):
        expected.learn("chat", 500, 1000)
    assert expected.input_tokens("chat", 1000) == pytest.approx(500, abs=3)


def test_nothing_is_ever_expected_to_be_empty(expected):
    expected.learn("chat", 0, 1000)
    assert expected.input_tokens("chat", 1) == 1


def test_a_tenant_that_is_gone_is_forgotten_and_the_others_are_not(expected):
    for name in ("chat", "code"):
        expected.learn(name, 900, 1000)
    expected.keep({"code": None})
    assert expected.input_tokens("chat", 1000) == 250
    assert expected.input_tokens("code", 1000) == 900
