from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.replay.timeline import Sample, summarise


def sample(now_s: float, prefill: float = 0.0, decode: float = 0.0, **more: object) -> Sample:
    kept = {"running": 0, "waiting": 0, "kv_used_tokens": 0, "step_s_by_reason": {}}
    return Sample(now_s=now_s, prefill_sm_s=prefill, decode_sm_s=decode, **(kept | more))  # type: ignore[arg-type]


def test_shares_are_of_each_interval_when_samples_are_unequal() -> None:
    samples = [sample(0.0), sample(1.0, 50.0, 10.0), sample(3.0, 50.0, 110.0)]
    line = summarise(samples, total_sms=100, kv_capacity_tokens=10)
    assert line.end_s.tolist() == [1.0, 3.0]
    assert line.prefill_sm_ratio.tolist() == [0.5, 0.0]
    assert line.decode_sm_ratio.tolist() == [0.1, 0.5]
    assert line.idle_sm_ratio.tolist() == pytest.approx([0.4, 0.5])


def test_peaks_and_totals_are_kept_when_intervals_are_merged() -> None:
    samples = [
        sample(
            float(i), 10.0 * i, running=i % 5, waiting=9 - i, kv_used_tokens=i, step_s_by_reason={"x": 1.0}
        )
        for i in range(10)
    ]
    line = summarise(samples, total_sms=100, kv_capacity_tokens=10, max_intervals=3)
    assert line.end_s.tolist() == [3.0, 6.0, 9.0]
    assert line.running.tolist() == [3.0, 4.0, 4.0]
    assert line.waiting.tolist() == [8.0, 5.0, 2.0]
    assert line.kv_used_ratio.tolist() == [0.3, 0.6, 0.9]
    assert line.prefill_sm_ratio.tolist() == pytest.approx([0.1, 0.1, 0.1])


def test_reasons_share_the_step_time_when_several() -> None:
    samples = [
        sample(0.0),
        sample(1.0, step_s_by_reason={"best_fit": 0.2, "decode_alone": 0.2}),
        sample(2.0),
        sample(3.0, step_s_by_reason={"decode_alone": 0.5}),
    ]
    line = summarise(samples, total_sms=100, kv_capacity_tokens=10)
    assert {reason: share.tolist() for reason, share in line.reason_ratio.items()} == {
        "best_fit": [0.5, 0.0, 0.0],
        "decode_alone": [0.5, 0.0, 1.0],
    }


def test_there_is_no_interval_when_time_never_passed() -> None:
    line = summarise([sample(0.0), sample(0.0)], total_sms=100, kv_capacity_tokens=10)
    assert len(line.end_s) == len(line.running) == len(line.idle_sm_ratio) == 0


@given(st.integers(1, 400), st.integers(1, 50))
def test_intervals_are_few_and_cover_everything_when_samples_are_many(count: int, most: int) -> None:
    samples = [sample(float(i), 7.0 * i) for i in range(count)]
    line = summarise(samples, total_sms=10, kv_capacity_tokens=1, max_intervals=most)
    assert len(line.end_s) <= most
    widths = np.diff(np.concatenate(([0.0], line.end_s)))
    assert float((line.prefill_sm_ratio * widths).sum() * 10) == pytest.approx(7.0 * (count - 1))
