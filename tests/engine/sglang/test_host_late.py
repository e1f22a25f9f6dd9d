"""What the device waited until the host had launched a step; its work ends when the test says."""

import pytest
from engine_rig import IDLE, Rig, split

from pdmuxd.engine.link.messages import HOST_DELAY_S, IterationRecord

STEP = split(decode_steps=1)


def serving(rig):
    """A step in flight whose start the device has passed; its end event."""
    rig.decoding("z", outputs=100)
    rig.turn(STEP)
    rig.link.sent.clear()
    launched = rig.loop._decode.in_flight.launched
    rig.device.finish(launched.start)
    return launched.end


def late(rig):
    return [step.host_late_s for step in rig.link.of(IterationRecord) if step.decode_bs]


def passed(rig, after_s):
    """The device has begun with the step launched last."""
    rig.clock.now_s += after_s
    rig.device.finish(rig.loop._decode.in_flight.launched.start)


def test_a_step_was_late_by_what_the_device_waited_for_its_launch():
    rig = Rig()
    end = serving(rig)
    rig.clock.now_s += 0.01
    rig.device.finish(end)
    rig.turn(STEP, after_s=0.004)
    passed(rig, 0.0)
    rig.turns([IDLE, IDLE])
    assert late(rig)[-1] == pytest.approx(0.004)
    assert rig.loop.counters().host_delays == 1


def test_a_step_is_not_late_when_the_one_before_was_in_flight():
    rig = Rig()
    end = serving(rig)
    wait = rig.port.wait

    def wait_behind(launched):
        """The device ends the first and, later, begins with what was launched behind it."""
        if launched.end is end:
            rig.device.finish(end)
            passed(rig, 0.5 * HOST_DELAY_S)
        wait(launched)

    rig.port.wait = wait_behind
    rig.turn(STEP)
    rig.turns([IDLE, IDLE])
    assert late(rig)[-1] == 0.0
    assert rig.loop.counters().host_delays == 0


def test_nothing_is_said_of_a_step_that_follows_no_other():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.turns([STEP, IDLE])
    assert late(rig) == [None]
