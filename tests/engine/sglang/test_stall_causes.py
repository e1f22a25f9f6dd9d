"""What a stalled step is charged to: the part of the host's turn that was waited for, or what is new."""

import gc

import pytest
from engine_rig import Rig, split

from pdmuxd.engine.core.types import Decision, DecodeShape, Mode, Reason
from pdmuxd.engine.link.messages import IterationRecord, StallCause
from pdmuxd.engine.loop.decode import Step, StepTiming
from pdmuxd.engine.loop.host_time import HostTime, cause_of
from pdmuxd.engine.sglang.internals.garbage import ProcessGarbage

STEP = split(decode_steps=1)
SLOW_S = 0.05


def step(host_s=None, *, mode=Mode.DECODE, admit=()):
    return Step(
        launched=None,
        decision=Decision(mode=mode, partition_id=0, reason=Reason.DECODE_ALONE, admit=admit),
        prefill_sms=0,
        decode_sms=132,
        decode=DecodeShape(bs=1, reused_tokens=1),
        previous_end=None,
        host_s=host_s or {},
    )


def charged(one, late_s, *, has_switched=False):
    timing = StepTiming(gap_s=0.06, busy_s=0.06 - late_s, host_late_s=late_s)
    return cause_of(one, timing, SLOW_S, has_switched=has_switched)


@pytest.mark.parametrize(
    "part", [StallCause.INPUT, StallCause.RESULTS, StallCause.DECISION, StallCause.LAUNCH]
)
def test_the_longest_part_of_the_turn_is_charged_when_the_device_waited_for_the_host(part):
    host_s = {StallCause.INPUT: 0.001, StallCause.LAUNCH: 0.002} | {part: 0.04}
    assert charged(step(host_s), 0.04, has_switched=True) is part


def test_a_collection_is_charged_when_it_took_half_of_what_the_host_was_late_by():
    host_s = {StallCause.RESULTS: 0.04, StallCause.COLLECTION: 0.02}
    assert charged(step(host_s), 0.04) is StallCause.COLLECTION
    assert charged(step(host_s | {StallCause.COLLECTION: 0.019}), 0.04) is StallCause.RESULTS


def test_what_is_new_is_charged_when_the_host_was_in_time():
    host_s = {StallCause.LAUNCH: 0.04}
    assert charged(step(host_s, mode=Mode.SPLIT, admit=("a",)), 0.02) is StallCause.PREFILL_BEGINS
    assert charged(step(host_s), 0.02, has_switched=True) is StallCause.SWITCH
    assert charged(step(host_s), 0.02) is StallCause.DEVICE


@pytest.mark.parametrize("where", ["take_input", "read", "launch_decode"])
def test_a_step_that_the_loop_launched_late_says_what_the_host_did(where, monkeypatch):
    rig = Rig()
    rig.decoding("z", outputs=400)
    launch = rig.port.launch_decode

    def launch_on_idle(*given):
        """The device begins with it at once, since it is done with the one before."""
        step = launch(*given)
        rig.device.finish(step.start)
        return step

    def compute():
        """The device ends the step in flight, unless it has."""
        end = rig.loop._decode.in_flight.launched.end
        if end.done_s is None:
            rig.clock.now_s += 0.01
            rig.device.finish(end)

    monkeypatch.setattr(rig.port, "launch_decode", launch_on_idle)
    rig.turn(STEP)
    original, slow = getattr(rig.port, where), []

    def slowly(*given, **named):
        if slow:
            slow.clear()
            compute()
            rig.clock.now_s += SLOW_S
        return original(*given, **named)

    monkeypatch.setattr(rig.port, where, slowly)
    for number in range(80):
        compute()
        slow += [True] if number == 60 else []
        rig.turn(STEP, after_s=0.0)
    causes = [one.stall_cause for one in rig.link.of(IterationRecord) if one.stall_s]
    wanted = {"take_input": "input", "read": "results", "launch_decode": "launch"}[where]
    assert causes == [wanted]


def test_waiting_for_the_device_is_charged_to_nobody():
    now = [0.0]
    host = HostTime(lambda: now[0])
    now[0] = 1.0
    host.passed()
    now[0] = 1.25
    host.passed(StallCause.RESULTS)
    now[0] = 1.75
    host.passed(StallCause.LAUNCH)
    assert host.launched() == {
        StallCause.RESULTS: 0.25,
        StallCause.LAUNCH: 0.5,
        StallCause.COLLECTION: 0.0,
    }
    assert host.launched() == {StallCause.COLLECTION: 0.0}


def test_collections_of_this_process_are_timed():
    garbage = ProcessGarbage(None)
    assert garbage.collected_s() == 0.0
    garbage.hold("scheduler", is_idle=lambda: True, keeps_thresholds=True)
    try:
        gc.collect()
        assert garbage.collected_s() > 0.0
    finally:
        garbage._holder.release()
