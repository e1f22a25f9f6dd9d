"""The instance-pressure controller: PLA-Serve algorithm 2.

It conserves instances, leaves each pool its least, waits out the cool-down, and settles under constant load.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.pressure import (
    InstanceSignals,
    Pool,
    PressureRules,
    PressureState,
    control,
    pool_pressure,
    pressure,
)

RULES = PressureRules()


def signals(queue_s: float = 0.0, late_ratio: float = 0.0, busy_ratio: float = 0.0) -> InstanceSignals:
    return InstanceSignals(queue_s=queue_s, late_ratio=late_ratio, busy_ratio=busy_ratio)


def step(
    state: PressureState, short_s: float, long_s: float, now_s: float = 100.0, rules: PressureRules = RULES
) -> tuple[Pool | None, PressureState]:
    """One tick with the same backlog on every instance of a pool."""
    shorts, longs = [signals(short_s)] * state.short, [signals(long_s)] * state.long
    return control(state, shorts, longs, now_s=now_s, rules=rules)


def test_pressure_is_backlog_and_lateness_less_use() -> None:
    rules = PressureRules(queue_weight=2.0, late_weight=3.0, busy_weight=0.5)
    # 2 * 1.5 + 3 * 0.2 - 0.5 * 0.8
    assert pressure(signals(1.5, 0.2, 0.8), rules) == pytest.approx(3.2)


def test_a_pool_is_as_pressed_as_its_ninetieth_percentile() -> None:
    pool = [signals(float(i)) for i in range(1, 11)]
    assert pool_pressure(pool, RULES) == 9.0
    assert pool_pressure([signals(busy_ratio=1.0)], RULES) == 0.0


def test_one_instance_goes_to_the_pool_that_is_pressed() -> None:
    state = PressureState(short=2, long=2)
    assert step(state, 4.0, 1.0) == (Pool.SHORT, PressureState(short=3, long=1, moved_s=100.0))
    assert step(state, 1.0, 4.0) == (Pool.LONG, PressureState(short=1, long=3, moved_s=100.0))


@pytest.mark.parametrize(
    ("state", "short_s", "long_s", "now_s"),
    [
        (PressureState(short=2, long=2), 1.5, 1.0, 100.0),
        (PressureState(short=2, long=2), 0.04, 0.0, 100.0),
        (PressureState(short=2, long=2, moved_s=96.0), 9.0, 1.0, 100.0),
        (PressureState(short=3, long=1), 9.0, 1.0, 100.0),
        (PressureState(short=1, long=2), 1.0, 0.65, 100.0),
    ],
    ids=["hysteresis", "nothing wrong", "cool-down", "least", "it would be undone"],
)
def test_nobody_moves_when(state: PressureState, short_s: float, long_s: float, now_s: float) -> None:
    assert step(state, short_s, long_s, now_s) == (None, state)


load = st.floats(0.0, 50.0)


@given(st.integers(1, 12), st.integers(1, 12), load, load, st.floats(0.0, 2.0))
def test_it_settles_without_swinging_when_the_load_is_constant(
    short: int, long: int, short_load: float, long_load: float, hysteresis: float
) -> None:
    """The plant: a pool shares its work evenly, so that its pressure is load / instances."""
    rules = PressureRules(hysteresis=hysteresis)
    state = PressureState(short=short, long=long)
    directions = []
    for tick in range(40):
        to, state = step(state, short_load / state.short, long_load / state.long, 10.0 * tick, rules)
        directions.append(to)
    moves = [to for to in directions if to is not None]
    assert len(set(moves)) <= 1, "it never takes back what it gave"
    assert directions[len(moves) :] == [None] * (40 - len(moves)), "once settled, it stays"


tick = st.tuples(st.floats(0.0, 3.0), load, load, st.floats(0.0, 1.0), st.floats(0.0, 1.0))


@given(st.integers(1, 8), st.integers(1, 8), st.lists(tick, max_size=40))
def test_instances_are_conserved_whatever_is_measured(
    short: int, long: int, ticks: list[tuple[float, float, float, float, float]]
) -> None:
    state, now_s, moved_s = PressureState(short=short, long=long), 0.0, []
    for pause_s, short_s, long_s, late_ratio, busy_ratio in ticks:
        now_s += pause_s
        shorts = [signals(short_s, late_ratio, busy_ratio)] * state.short
        longs = [signals(long_s, 1.0 - late_ratio, busy_ratio)] * state.long
        before = state
        to, state = control(state, shorts, longs, now_s=now_s, rules=RULES)
        assert state.short + state.long == short + long
        assert min(state.short, state.long) >= 1
        assert abs(state.short - before.short) == (to is not None)
        if to is not None:
            moved_s.append(now_s)
    assert all(b - a >= RULES.cooldown_s for a, b in pairwise(moved_s))


@pytest.mark.parametrize(
    ("field", "value"),
    [("period_s", 0.0), ("hysteresis", -0.1), ("min_instances", 0), ("quantile", 0.0), ("quantile", 1.1)],
)
def test_a_rule_is_refused_by_name_when_it_is_out_of_range(field: str, value: float) -> None:
    with pytest.raises(PolicyError, match=f"pressure.{field}"):
        replace(RULES, **{field: value})


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(PolicyError, match="each pool needs at least one"):
        PressureState(short=0, long=4)
