"""A device that differs from its profile, the same each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from engines import PROFILE, engine, request, run_until_idle

from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise, KindBias, WorkKind


def test_work_takes_what_bias_scatter_and_stalls_say() -> None:
    lasting = DeviceNoise(bias_ratio=0.1, scatter_ratio=0.05, stall_ratio=0.02, stall_s=5.0).lasting()
    lasts_s = np.array([lasting(1.0) for _ in range(20_000)])
    stalled = lasts_s > 5.0
    assert stalled.mean() == pytest.approx(0.02, rel=0.2)
    logs = np.log(lasts_s[~stalled])
    assert (logs.mean(), logs.std()) == (pytest.approx(np.log(1.1), abs=0.002), pytest.approx(0.05, rel=0.05))


def test_the_same_seed_gives_the_same_times_and_another_one_others() -> None:
    noise = DeviceNoise(scatter_ratio=0.1)
    first, again, other = noise.lasting(), noise.lasting(), replace(noise, seed=1).lasting()
    assert [first(1.0) for _ in range(5)] == [again(1.0) for _ in range(5)] != [other(1.0) for _ in range(5)]


def test_a_profile_s_device_has_its_noise() -> None:
    device = replace(PROFILE, noise=DeviceNoise(bias_ratio=0.5)).new_device()
    work = device.launch(device.decode, solo_s=2.0, sms=132, hbm_bytes=0.0)
    assert device.run_until(work.end) == pytest.approx(3.0)
    assert PROFILE.noise == NO_NOISE


def test_work_of_one_kind_and_size_may_take_longer_by_itself() -> None:
    noise = DeviceNoise(
        bias_ratio=0.5,
        by_kind=(
            KindBias(kind=WorkKind.FUSED, bias_ratio=0.2, from_size=512),
            KindBias(kind=WorkKind.FUSED, bias_ratio=1.0, from_size=1024),
            KindBias(kind=WorkKind.PREFILL, bias_ratio=-0.5),
        ),
    )
    device = replace(PROFILE, noise=noise).new_device()

    def lasts_s(kind: WorkKind, size: int) -> float:
        begun_s = device.now_s
        work = device.launch(device.decode, solo_s=1.0, sms=132, hbm_bytes=0.0, of=(kind, size))
        return device.run_until(work.end) - begun_s

    assert lasts_s(WorkKind.DECODE, 2048) == pytest.approx(1.5)
    assert lasts_s(WorkKind.FUSED, 511) == pytest.approx(1.5)
    assert lasts_s(WorkKind.FUSED, 512) == pytest.approx(1.8)
    assert lasts_s(WorkKind.FUSED, 1024) == pytest.approx(3.6)
    assert lasts_s(WorkKind.PREFILL, 1) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("policy", "kind", "other"),
    [("muxwise", "prefill", "fused"), ("slack/chunked:512", "fused", "prefill")],
)
def test_what_a_policy_launches_is_named_as_what_it_is(policy: str, kind: str, other: str) -> None:
    def ended_s(*slower: str) -> float:
        by_kind = tuple(KindBias(kind=WorkKind(name), bias_ratio=0.5) for name in slower)
        made = engine(policy, profile=replace(PROFILE, noise=DeviceNoise(by_kind=by_kind)))
        for number in range(4):
            made.submit(request(str(number), input_tokens=4000, output_tokens=20), 0.0)
        run_until_idle(made)
        return made.now_s

    assert ended_s(kind) > 1.2 * ended_s()
    assert ended_s("decode") > 1.05 * ended_s()
    assert ended_s(other) == ended_s()


def test_stalls_come_as_by_a_clock() -> None:
    device = replace(PROFILE, noise=DeviceNoise(stall_s=0.03, stall_every_s=1.6)).new_device()
    stalled_s = []
    while device.now_s < 20.0:
        begun_s = device.now_s
        work = device.launch(device.decode, solo_s=0.02, sms=132, hbm_bytes=0.0)
        if device.run_until(work.end) - begun_s > 0.03:
            stalled_s.append(begun_s)
    assert stalled_s == pytest.approx([1.6 * tick for tick in range(1, 13)], abs=0.06)


def test_a_clock_s_ticks_that_nothing_began_after_do_not_add_up() -> None:
    stalled_s = DeviceNoise(stall_s=0.03, stall_every_s=1.6).stalling()
    assert [stalled_s(at_s) for at_s in (0.0, 1.5, 1.6, 1.7, 9.7, 9.8, 11.3)] == [
        0,
        0,
        0.03,
        0,
        0.03,
        0,
        0.03,
    ]
    assert DeviceNoise(stall_s=0.03).stalling()(100.0) == 0.0
