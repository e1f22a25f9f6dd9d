"""In no 60 seconds there is more than the window showed; and there is room when it said so."""

from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.gateway.limits.window import WINDOW_S, SlidingWindow

STEPS = st.lists(st.tuples(st.floats(0, 90), st.integers(1, 50)), max_size=40)


@given(STEPS, st.integers(50, 200))
def test_no_minute_has_more_than_the_limit_when_the_window_lets_it_in(steps, limit):
    window, now_s, used = SlidingWindow(), 1000.0, []
    for pause_s, amount in steps:
        now_s += pause_s
        if window.total(now_s) + amount <= limit:
            window.add(amount, now_s)
            used.append((now_s, amount))
        assert window.peek(now_s) == window.total(now_s)
    for start_s, _ in used:
        assert sum(amount for at_s, amount in used if start_s <= at_s < start_s + WINDOW_S) <= limit


@given(STEPS, st.integers(0, 100))
def test_there_is_room_just_when_it_was_promised(steps, at_most):
    window, now_s = SlidingWindow(), 1000.0
    for pause_s, amount in steps:
        now_s += pause_s
        window.add(amount, now_s)
    wait_s = window.until(at_most, now_s)
    assert 0.0 <= wait_s <= WINDOW_S + 1
    assert window.peek(now_s + wait_s + 1e-6) <= at_most
    if wait_s > 0.01:
        assert window.peek(now_s + wait_s - 0.01) > at_most
