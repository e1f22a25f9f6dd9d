from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import waiting

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.loop.requests import (
    MAX_WAIT_TARGETS,
    MIN_MAX_WAIT_S,
    RefusalCause,
    Target,
)
from pdmuxd.engine.loop.waiting import WaitingLines


def of(number: int, tenant: str) -> WaitingRequest:
    return replace(waiting(number, 100), tenant=tenant)


def shown(lines: WaitingLines, size: int) -> list[str]:
    return [request.request_id for request in lines.window(size)]


def filled(*tenants: str) -> WaitingLines:
    lines = WaitingLines()
    for number, tenant in enumerate(tenants):
        lines.add(of(number, tenant))
    return lines


def test_a_window_shows_arrivals_in_order_when_all_fit() -> None:
    assert shown(filled("a", "b", "a", "c"), 8) == ["r0", "r1", "r2", "r3"]


def test_every_tenant_is_seen_when_one_floods() -> None:
    lines = filled(*"a" * 100, "b", *"a" * 100, "c", "c")
    seen = [request.tenant for request in lines.window(16)]
    assert (seen.count("a"), seen.count("b"), seen.count("c")) == (13, 1, 2)
    assert shown(lines, 16)[:13] == [f"r{n}" for n in range(13)]


def test_those_due_first_are_seen_when_a_tenant_has_more_than_its_part() -> None:
    """300 documents that are due in an hour hide no question that is due in a second."""
    lines = WaitingLines()
    for number in range(300):
        lines.add(replace(of(number, "a"), deadline_s=3600.0))
    for number in range(300, 320):
        lines.add(replace(of(number, "a"), deadline_s=1.0 + number))
    seen = shown(lines, 64)
    assert seen[:32] == [f"r{n}" for n in range(32)]
    assert seen[44:] == [f"r{n}" for n in range(300, 320)]
    assert len(set(seen)) == 64
    lines.update(replace(of(310, "a"), deadline_s=7200.0))
    lines.remove("r311")
    assert {"r310", "r311"}.isdisjoint(shown(lines, 64))
    assert shown(lines, 1) == ["r0"]


@given(
    steps=st.lists(st.tuples(st.sampled_from("ardu"), st.integers(0, 30), st.floats(0.0, 9.0)), max_size=80),
    size=st.integers(1, 20),
)
def test_a_window_is_full_and_shows_nobody_twice_whatever_comes_and_goes(
    steps: list[tuple[str, int, float]], size: int
) -> None:
    lines, waits = WaitingLines(), set[int]()
    for step, number, deadline_s in steps:
        entry = replace(of(number, "ab"[number % 2]), deadline_s=deadline_s)
        if step == "a" and number not in waits:
            lines.add(entry, first=deadline_s < 1.0)
            waits.add(number)
        elif step == "r" and number in waits:
            lines.remove(entry.request_id)
            waits.remove(number)
        elif step == "u" and number in waits:
            lines.update(entry)
        elif step == "d":
            lines.deprioritize(entry.request_id)
    seen = shown(lines, size)
    assert len(set(seen)) == len(seen) == min(size, len(waits))
    assert set(seen) <= {f"r{number}" for number in waits}


def test_the_window_is_shared_evenly_when_all_flood() -> None:
    seen = [request.tenant for request in filled(*"ab" * 50, *"c" * 50).window(30)]
    assert [seen.count(name) for name in "abc"] == [10, 10, 10]


def test_the_deprioritized_are_behind_and_keep_an_eighth() -> None:
    lines = filled(*"a" * 40)
    for number in range(20):
        lines.deprioritize(f"r{number}")
    assert shown(lines, 16) == [*(f"r{n}" for n in range(20, 34)), "r0", "r1"]
    assert [r.is_deprioritized for r in lines.window(16)] == [False] * 14 + [True] * 2
    lines.restore(lambda entry: entry)
    assert shown(lines, 4) == ["r0", "r1", "r2", "r3"]
    assert not any(r.is_deprioritized for r in lines.window(40))


def test_a_window_is_new_after_every_change() -> None:
    lines = filled("a", "a")
    assert shown(lines, 4) == ["r0", "r1"]
    lines.add(of(2, "a"), first=True)
    assert shown(lines, 4) == ["r2", "r0", "r1"]
    lines.update(replace(of(0, "a"), new_tokens=7))
    assert [r.new_tokens for r in lines.window(4)] == [100, 7, 100]
    lines.remove("r2")
    assert shown(lines, 4) == ["r0", "r1"]
    assert lines.get("r2") is None
    with pytest.raises(KeyError):
        lines.remove("r2")
    assert len(lines) == 2


def test_who_waits_too_long_or_wants_no_late_answer_is_named_with_the_cause() -> None:
    lines = WaitingLines()
    lines.add(replace(of(0, "a"), expires_s=10.0, deadline_s=1.0))
    lines.add(replace(of(1, "b"), expires_s=10.0, deadline_s=1.0, refuses_late=True))
    lines.add(replace(of(2, "c"), deadline_s=1.0))
    assert lines.expired(0.5) == []
    assert lines.expired(2.0) == [("r1", RefusalCause.DEADLINE_UNREACHABLE)]
    lines.deprioritize("r0")
    assert set(lines.expired(11.0)) == {("r0", RefusalCause.MAX_WAIT), ("r1", RefusalCause.MAX_WAIT)}


def test_the_longest_wait_is_the_tenants_or_else_a_multiple_of_the_target() -> None:
    assert Target(slo=DEFAULT_SLO, version=1, max_wait_s=3.0).expires_s(100.0, 40.0) == 103.0
    assert Target(slo=DEFAULT_SLO, version=1).expires_s(100.0, 40.0) == 100.0 + MAX_WAIT_TARGETS * 40.0
    assert Target(slo=DEFAULT_SLO, version=1).expires_s(100.0, 1.0) == 100.0 + MIN_MAX_WAIT_S
