"""A device that differs from its profile, the same each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from engines import PROFILE

from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise


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
