"""Steps that take far longer than expected are counted, these and no others, whatever policy decides."""

import random
from dataclasses import replace

import pytest
from engines import PROFILE, engine

from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.link.messages import HOST_DELAY_S

POLICIES = ("auto", "muxwise", "chunked:512")
STALL_S = 0.05
"""Longer than any step of this load takes else."""


def served(policy, noise, *, overheads=PROFILE.overheads, requests=150):
    """The engine and its decode and fused steps after some chat."""
    rng, at_s, asked = random.Random(1), 0.0, []
    for number in range(requests):
        at_s += rng.expovariate(20.0)
        asked.append(
            EmulatedRequest(
                request_id=str(number),
                tenant="default",
                arrival_s=at_s,
                input_tokens=rng.randrange(50, 3000),
                output_tokens=60,
            )
        )
    profile = replace(PROFILE, noise=noise, overheads=overheads)
    made = engine(policy, profile=profile, step_records=True)
    drive(made, asked, sample_every_s=1.0, on_sample=lambda _: None)
    return made, [record for record in made.drain_records() if record.decode_steps]


@pytest.mark.parametrize("policy", POLICIES)
def test_stalls_are_those_of_the_device_when_it_scatters_as_well(policy):
    made, steps = served(policy, DeviceNoise(scatter_ratio=0.06, stall_ratio=0.02, stall_s=STALL_S))
    stalled = [step for step in steps if step.measured_step_s > STALL_S]
    assert len(stalled) > 5
    assert [step.step for step in steps if step.stall_s] == [step.step for step in stalled]
    assert made.counters().stalls == len(stalled)
    assert all(0.8 * STALL_S < step.stall_s <= step.measured_step_s for step in stalled)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("noise", [NO_NOISE, DeviceNoise(bias_ratio=0.3, scatter_ratio=0.06)])
def test_there_are_no_stalls_when_the_device_is_slower_and_scatters(policy, noise):
    made, steps = served(policy, noise)
    assert (made.counters().stalls, sum(step.stall_s for step in steps)) == (0, 0.0)


def test_steps_say_what_the_device_waited_for_the_host_when_launching_takes_long():
    quick, steps = served("muxwise", NO_NOISE)
    assert (
        quick.counters().host_delays == sum((step.host_late_s or 0.0) > HOST_DELAY_S for step in steps) == 0
    )
    slow, steps = served("muxwise", NO_NOISE, overheads=replace(PROFILE.overheads, layer_launch_s=0.02))
    late = [step for step in steps if (step.host_late_s or 0.0) > HOST_DELAY_S]
    assert slow.counters().host_delays == len(late) > 20
    assert all(step.host_late_s < step.measured_step_s for step in late)
