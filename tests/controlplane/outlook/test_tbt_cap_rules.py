"""Who is capped, look by look."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telemetry_feeds import directory

from pdmuxd.controlplane.outlook.tbt_cap_rules import BEGINS_AFTER, ENDS_AFTER, CapRule
from pdmuxd.controlplane.outlook.tbt_costs import TbtCost
from pdmuxd.controlplane.tenants.records import TenantRecord


def cost(ratio: float, *, others_s: float = 0.06) -> TbtCost:
    return TbtCost(
        tenant="chat",
        tbt_s=0.01,
        time_ratio=1.0,
        others_tbt_s=others_s,
        prefill_busy_ratio=ratio,
        prefill_busy_ratio_without=0.0,
    )


def tenants(most: float | None) -> dict[str, TenantRecord]:
    chat = directory(chat=0.01).tenants["chat"]
    return {"chat": replace(chat, max_tbt_cost_ratio=most, since_ms=7)}


def looks(rule: CapRule, ratios: list[float], most: float | None = 0.1) -> list[bool]:
    """Whether `chat` is capped after each look."""
    found = []
    for ratio in ratios:
        rule.look((cost(ratio),), tenants(most), now_s=1.0)
        found.append("chat" in rule.caps)
    return found


def test_a_tenant_is_capped_when_its_target_has_cost_more_than_it_may_twice_in_a_row() -> None:
    rule = CapRule({})
    assert looks(rule, [0.2, 0.05, 0.2, 0.2]) == [False, False, False, True]
    cap = rule.caps["chat"]
    assert (cap.since_s, cap.tenant_since_ms, cap.tbt_s, cap.cost_ratio) == (1.0, 7, 0.06, 0.2)


def test_a_tenant_stays_capped_until_its_cost_is_well_under_the_cap_for_a_while() -> None:
    rule = CapRule({})
    looks(rule, [0.2, 0.2])
    assert looks(rule, [0.09, 0.07, 0.07, 0.07, 0.09]) == [True] * 5, "0.09 is no change"
    assert looks(rule, [0.07] * ENDS_AFTER) == [True] * (ENDS_AFTER - 1) + [False]


def test_a_tenant_is_free_when_it_sends_nothing_any_more() -> None:
    rule = CapRule({})
    looks(rule, [0.2, 0.2])
    for _ in range(ENDS_AFTER - 1):
        assert rule.look((), tenants(0.1), now_s=2.0) == ({}, {})
    assert list(rule.look((), tenants(0.1), now_s=2.0)[1]) == ["chat"]


def test_a_tenant_that_may_cost_nothing_is_free_when_it_costs_nothing() -> None:
    rule = CapRule({})
    assert looks(rule, [0.01] * BEGINS_AFTER, most=0.0)[-1]
    assert not looks(rule, [0.0] * ENDS_AFTER, most=0.0)[-1]


def test_the_plan_follows_when_the_others_targets_change() -> None:
    rule = CapRule({})
    looks(rule, [0.2, 0.2])
    rule.look((cost(0.2, others_s=0.04),), tenants(0.1), now_s=3.0)
    assert (rule.caps["chat"].tbt_s, rule.caps["chat"].since_s) == (0.04, 1.0)


@pytest.mark.parametrize("changed", [{"max_tbt_cost_ratio": None}, {"since_ms": 8}])
def test_a_tenant_is_free_at_once_when_its_limit_is_gone_or_it_is_another(changed: dict[str, int]) -> None:
    rule = CapRule({})
    looks(rule, [0.2, 0.2])
    known = {name: replace(one, **changed) for name, one in tenants(0.1).items()}
    assert list(rule.look((cost(0.2),), known, now_s=2.0)[1]) == ["chat"]
    assert rule.caps == {}


@given(
    ratios=st.lists(st.floats(0.0, 1.0), max_size=30),
    most=st.sampled_from((None, 1.0)),
)
def test_nothing_changes_when_a_target_may_cost_what_it_likes(
    ratios: list[float], most: float | None
) -> None:
    rule = CapRule({})
    assert not any(looks(rule, ratios, most))
    assert rule.look((), tenants(most), now_s=1.0) == ({}, {})


@given(ratios=st.lists(st.floats(0.0, 1.0), max_size=60), most=st.floats(0.0, 1.0))
def test_a_cap_begins_and_ends_only_after_looks_in_a_row(ratios: list[float], most: float) -> None:
    """Its two edges are apart, so that a steady cost leads to at most one change."""
    rule, was_capped, since = CapRule({}), False, 0
    for ratio, is_capped in zip(ratios, looks(rule, ratios, most), strict=True):
        since += 1
        if is_capped != was_capped:
            assert since >= (BEGINS_AFTER if is_capped else ENDS_AFTER)
            assert ratio > most if is_capped else ratio < most or ratio == 0.0
            was_capped, since = is_capped, 0
