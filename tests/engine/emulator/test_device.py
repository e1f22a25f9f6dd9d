from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.emulator.device import Device, layers_left


def device() -> Device:
    return Device(bytes_per_s=100.0, contention_ratio=0.2)


def test_work_takes_its_solo_time_when_it_runs_alone() -> None:
    d = device()
    d.launch(d.decode, solo_s=2.0, sms=32, hbm_bytes=200.0)
    assert d.decode_done_in_s() == 2.0
    d.run(2.0)
    assert not d.decode.is_busy
    assert d.decode.busy_sm_s == 64.0


def test_decode_slows_by_traffic_and_interference_when_prefill_runs_beside_it() -> None:
    d = device()
    d.launch(d.decode, solo_s=1.0, sms=32, hbm_bytes=80.0)
    d.launch(d.prefill, solo_s=10.0, sms=96, hbm_bytes=500.0)
    # Bandwidth asked for: 0.8 + 0.5 = 1.3 of what there is; interference 0.2 * 0.5.
    assert d.decode_done_in_s() == pytest.approx(1.3 * 1.1)
    # Prefill is slowed by 1 + 0.2 * 0.8 while decode runs: 1.43 s of time do 1.43 / 1.16 of its work.
    assert d.prefill_done_in_s() == pytest.approx(1.43 + 10.0 - 1.43 / 1.16)


def test_each_side_slows_by_its_own_ratios_when_they_are_told_apart() -> None:
    d = Device(
        bytes_per_s=100.0,
        contention_ratio=0.2,
        decode_colocated_ratio=0.09,
        decode_colocated_sms_ratio=0.08,
        prefill_colocated_ratio=1.0,
    )
    d.launch(d.prefill, solo_s=10.0, sms=96, hbm_bytes=100.0)
    d.launch(d.decode, solo_s=1.0, sms=32, hbm_bytes=40.0)
    # Prefill has 0.75 of the SMs and asks for 0.1 of the bandwidth, decode for 0.4.
    assert d.decode_done_in_s() == pytest.approx(1.0 + 0.09 + 0.08 * 0.75 + 0.2 * 0.1)
    assert d.prefill_done_in_s() == pytest.approx(1.17 + 10.0 - 1.17 / (1.0 + 0.4 * 0.25**0.5))


@given(
    decode_s=st.floats(0.001, 5.0),
    prefill_s=st.floats(0.001, 5.0),
    decode_bytes=st.floats(0.0, 500.0),
    prefill_bytes=st.floats(0.0, 500.0),
)
def test_the_forecast_is_what_happens_when_both_streams_run(
    decode_s: float, prefill_s: float, decode_bytes: float, prefill_bytes: float
) -> None:
    d = device()
    d.launch(d.decode, solo_s=decode_s, sms=32, hbm_bytes=decode_bytes)
    d.launch(d.prefill, solo_s=prefill_s, sms=96, hbm_bytes=prefill_bytes)
    decode_in_s, prefill_in_s = d.decode_done_in_s(), d.prefill_done_in_s()
    assert decode_in_s >= decode_s - 1e-9
    assert prefill_in_s >= prefill_s - 1e-9
    first_s, last_s = sorted((decode_in_s, prefill_in_s))
    d.run(first_s)
    assert d.decode.is_busy == (decode_in_s > first_s + 1e-8) or abs(decode_in_s - prefill_in_s) < 1e-8
    d.run(last_s - first_s + 1e-7)
    assert not d.decode.is_busy
    assert not d.prefill.is_busy


def test_the_running_layer_counts_when_layers_are_left() -> None:
    assert [layers_left(s, 1.0) for s in (0.0, 0.5, 1.0, 1.5, 3.0)] == [0, 1, 1, 2, 3]
