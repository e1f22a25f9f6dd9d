"""Gaps are those between writes; what a client holds up by reading slowly is not counted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.gateway.delivery import Delivery


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def write(delivery, clock, after_s, takes_s=0.0):
    clock.now_s += after_s
    delivery.begins()
    clock.now_s += takes_s
    delivery.written()


def test_the_first_token_and_each_gap_are_timed():
    clock = Clock()
    delivery = Delivery(arrived_s=99.5, tbt_target_s=0.04, clock=clock)
    assert delivery.seen() is None
    for after_s in (0.25, 0.03, 0.05, 0.03):
        write(delivery, clock, after_s)
    seen = delivery.seen()
    assert seen.ttft_s == pytest.approx(0.75)
    assert (seen.gaps_missed, sum(count for _, count in seen.gap_counts)) == (1, 3)
    assert seen.gap_max_s == pytest.approx(0.05)


def test_a_client_that_reads_slowly_harms_only_itself():
    clock = Clock()
    delivery = Delivery(arrived_s=100.0, tbt_target_s=0.04, clock=clock)
    for _ in range(5):
        write(delivery, clock, 0.03, takes_s=10.0)
    assert delivery.seen().gaps_missed == 0


async def test_the_gateway_times_what_it_streams(setup):
    told = []

    class Watcher:
        def __getattr__(self, name):
            return lambda *args, **more: told.append((name, more))

    setup.gateway._observer = Watcher()
    for streamed, fields in ((True, {"stream": True}), (False, {}), (False, {"stream": True, "n": 2})):
        told.clear()
        setup.engine.say(b"data: a\n\n", b"data: b\n\n") if fields.get("stream") else setup.engine.say(b"{}")
        if fields.get("stream"):
            setup.engine.end()
        async with setup.post(**fields) as response:
            await response.read()
        (answered,) = (more for name, more in told if name == "on_answered")
        assert (answered["delivered"] is not None) == streamed


GAPS_S = st.floats(0.0, 2.0) | st.sampled_from([0.0, 0.02, 0.04, 0.05])


@given(writes=st.lists(st.tuples(st.booleans(), GAPS_S), max_size=90))
def test_writes_past_the_task_count_as_its_own_that_take_no_time(writes):
    clock, own_clock = Clock(), Clock()
    delivery = Delivery(arrived_s=99.0, tbt_target_s=0.04, clock=clock)
    own = Delivery(arrived_s=99.0, tbt_target_s=0.04, clock=own_clock)
    for is_past, after_s in writes:
        write(own, own_clock, after_s)
        if is_past:
            clock.now_s += after_s
            delivery.wrote(clock.now_s)
        else:
            write(delivery, clock, after_s)
    seen, expected = delivery.seen(), own.seen()
    if expected is not None:
        expected = replace(expected, is_direct=any(is_past for is_past, _ in writes))
    assert seen == expected
