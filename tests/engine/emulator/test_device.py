from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.emulator.device import Device


def device() -> Device:
    return Device(bytes_per_s=100.0, contention_ratio=0.2)


def test_work_takes_its_solo_time_when_it_runs_alone() -> None:
    d = device()
    work = d.launch(d.decode, solo_s=2.0, sms=32, hbm_bytes=200.0)
    assert d.next_done_s() == 2.0
    d.run_to(2.0)
    assert (work.start.at_s, work.end.at_s) == (0.0, 2.0)
    assert not d.decode.is_busy
    assert d.decode.busy_sm_s == 64.0


def test_decode_slows_by_traffic_and_interference_when_prefill_runs_beside_it() -> None:
    d = device()
    step = d.launch(d.decode, solo_s=1.0, sms=32, hbm_bytes=80.0)
    layers = d.launch(d.prefill, solo_s=10.0, sms=96, hbm_bytes=500.0)
    # Bandwidth asked for: 0.8 + 0.5 = 1.3 of what there is; interference 0.2 * 0.5.
    assert d.run_until(step.end) == pytest.approx(1.3 * 1.1)
    # Prefill is slowed by 1 + 0.2 * 0.8 while decode runs: 1.43 s of time do 1.43 / 1.16 of its work.
    assert d.run_until(layers.end) == pytest.approx(1.43 + 10.0 - 1.43 / 1.16)


def test_each_side_slows_by_its_own_ratios_when_they_are_told_apart() -> None:
    d = Device(
        bytes_per_s=100.0,
        contention_ratio=0.2,
        decode_colocated_ratio=0.09,
        decode_colocated_sms_ratio=0.08,
        prefill_colocated_ratio=1.0,
    )
    layers = d.launch(d.prefill, solo_s=10.0, sms=96, hbm_bytes=100.0)
    step = d.launch(d.decode, solo_s=1.0, sms=32, hbm_bytes=40.0)
    # Prefill has 0.75 of the SMs and asks for 0.1 of the bandwidth, decode for 0.4.
    assert d.run_until(step.end) == pytest.approx(1.0 + 0.09 + 0.08 * 0.75 + 0.2 * 0.1)
    assert d.run_until(layers.end) == pytest.approx(1.17 + 10.0 - 1.17 / (1.0 + 0.4 * 0.25**0.5))


def test_work_waits_for_what_is_ahead_of_it_on_its_stream() -> None:
    d = device()
    first = d.launch(d.decode, solo_s=1.0, sms=32, hbm_bytes=0.0)
    second = d.launch(d.decode, solo_s=0.5, sms=64, hbm_bytes=0.0)
    assert second.start.at_s is None
    d.run_to(1.25)
    assert first.end.at_s == second.start.at_s == 1.0
    assert second.end.at_s is None
    assert d.run_until(second.end) == 1.5
    assert d.decode.busy_sm_s == 32.0 + 32.0


launches = st.lists(
    st.tuples(st.sampled_from(("prefill", "decode")), st.floats(0.001, 5.0), st.floats(0.0, 500.0)),
    min_size=1,
    max_size=8,
)


@given(launched=launches, looks=st.lists(st.floats(0.0, 20.0), max_size=8))
def test_events_are_passed_in_order_whenever_somebody_looks(
    launched: list[tuple[str, float, float]], looks: list[float]
) -> None:
    """Looking in between moves no event, and no work is faster than alone."""

    def ends(at: list[float]) -> list[float]:
        d = device()
        works = [
            d.launch(d.prefill if name == "prefill" else d.decode, solo_s=solo_s, sms=32, hbm_bytes=hbm_bytes)
            for name, solo_s, hbm_bytes in launched
        ]
        for at_s in sorted(at):
            d.run_to(at_s)
        found = [d.run_until(work.end) for work in works]
        for (name, solo_s, _), work in zip(launched, works, strict=True):
            assert work.start.at_s is not None, name
            assert work.end.at_s is not None
            assert work.end.at_s - work.start.at_s >= solo_s - 1e-8
        assert not d.decode.is_busy
        assert not d.prefill.is_busy
        return found

    assert ends(looks) == pytest.approx(ends([]), abs=1e-6)


def test_work_that_waits_for_an_event_begins_when_that_was_passed() -> None:
    d = device()
    whole = d.launch(d.decode, solo_s=2.0, sms=132, hbm_bytes=0.0)
    layers = d.launch(d.prefill, solo_s=3.0, sms=96, hbm_bytes=0.0, after=whole.end)
    later = d.launch(d.prefill, solo_s=1.0, sms=96, hbm_bytes=0.0, after=whole.end)
    d.run_to(1.0)
    assert (whole.start.at_s, layers.start.at_s, d.prefill.busy_sm_s) == (0.0, None, 0.0)
    d.run_to(6.0)
    assert (whole.end.at_s, layers.start.at_s, layers.end.at_s) == (2.0, 2.0, 5.0)
    assert (later.start.at_s, later.end.at_s) == (5.0, 6.0)
    assert d.next_done_s() == float("inf")
