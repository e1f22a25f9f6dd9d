"""The engine's end of the link: heartbeats, settings, measuring, stopping."""

import pytest
from engine_rig import Rig, split
from msgspec import structs

from pdmuxd.engine.core.errors import LinkError
from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.link.messages import EngineStats, IterationRecord, TenantQueues
from pdmuxd.engine.sglang.reporting import LISTEN_BUSY_S, LISTEN_IDLE_S

POINT = Measure(
    point_id=3, mode="decode", prefill_sms=0, decode_sms=132, prefill=(), decode=(100,), repeats=1
)


def answers(rig):
    rig.turn(after_s=1.01 * LISTEN_BUSY_S)
    return rig.link.of(Measured)


def test_a_point_is_measured_when_the_engine_is_idle():
    rig = Rig(measure=lambda message: Measured(point_id=message.point_id, decode_s=(0.5,)))
    rig.link.inbox.append(POINT)
    assert answers(rig) == [Measured(point_id=3, decode_s=(0.5,))]


def test_measuring_is_refused_when_a_request_waits_or_runs():
    rig = Rig(measure=lambda message: pytest.fail("measured while serving"))
    rig.decoding("a", outputs=2)
    rig.link.inbox.append(POINT)
    (answer,) = answers(rig)
    assert (answer.point_id, answer.error) == (3, "the engine is serving; it measures while idle")


def test_measuring_is_refused_when_a_step_is_unread():
    rig = Rig(measure=lambda message: pytest.fail("measured while serving"))
    rig.decoding("a", outputs=2)
    rig.turns([split(decode_steps=1)])
    rig.link.inbox.append(POINT)
    assert answers(rig)[0].error is not None


def test_measuring_is_refused_when_the_engine_cannot():
    rig = Rig()
    rig.link.inbox.append(POINT)
    assert answers(rig)[0].error == "this engine does not measure"


def test_measuring_is_refused_when_a_request_comes_in_the_turn_in_which_it_is_asked_for():
    rig = Rig(measure=lambda message: pytest.fail("measured while serving"))
    rig.arrive("a")
    rig.link.inbox.append(POINT)
    assert answers(rig)[0].error is not None


def test_each_point_is_measured_in_a_turn_of_its_own_when_several_are_asked_for():
    rig = Rig(measure=lambda message: Measured(point_id=message.point_id, decode_s=(0.5,)))
    rig.link.inbox.extend([POINT, structs.replace(POINT, point_id=4)])
    assert [answer.point_id for answer in answers(rig)] == [3]
    assert [answer.point_id for answer in answers(rig)] == [3, 4]


def test_a_message_that_cannot_be_read_is_logged_and_the_next_one_is_read(caplog):
    rig = Rig()
    rig.link.inbox.extend([LinkError("a frame of another protocol"), POINT])
    assert len(answers(rig)) == 1
    assert [record.getMessage() for record in caplog.records] == ["link: a frame of another protocol"]


def test_the_daemon_is_heard_within_100_ms_when_the_loop_is_busy():
    rig = Rig()
    rig.decoding("a", outputs=100)
    rig.turn(split(decode_steps=1), after_s=1.01 * LISTEN_BUSY_S)
    rig.link.inbox.append(POINT)
    for _ in range(4):
        rig.turn(split(decode_steps=1), after_s=LISTEN_BUSY_S / 5)
    assert rig.link.inbox, "looking costs a turn too much to do it each time"
    rig.turn(split(decode_steps=1), after_s=LISTEN_BUSY_S / 4)
    assert not rig.link.inbox


def test_the_daemon_is_heard_within_5_ms_when_the_loop_is_idle():
    rig = Rig(measure=lambda message: Measured(point_id=message.point_id, decode_s=(0.5,)))
    rig.turn(after_s=1.01 * LISTEN_BUSY_S)
    rig.link.inbox.append(POINT)
    rig.turn(after_s=LISTEN_IDLE_S)
    assert len(rig.link.of(Measured)) == 1


def test_a_heartbeat_comes_ten_times_a_second():
    rig = Rig()
    for _ in range(100):
        rig.turn()
    assert 8 <= len(rig.link.of(EngineStats)) <= 12  # idle turns take a moment more than their 10 ms


def test_a_heartbeat_counts_what_decodes_waits_and_prefills():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.arrive("b")
    rig.turn(split(admit=("a",), decode_steps=1, prefill_layers=2))
    rig.link.dropped = 7
    rig.turn(split(partition_id=2, decode_steps=1), after_s=0.2)
    rig.turn(split(partition_id=2, decode_steps=1), after_s=0.2)
    stats = rig.link.of(EngineStats)[-1]
    assert (stats.running, stats.waiting, stats.prefilling) == (1, 1, 1)
    assert (stats.partition_id, stats.prefill_sms, stats.decode_sms) == (2, 96, 36)
    assert (stats.switches, stats.dropped_records) == (2, 7)
    assert stats.steps == 1 + 2 - 1, "the first prefill and all steps but the unread one"


def test_the_share_of_busy_sms_is_that_of_the_time_between_two_heartbeats():
    rig = Rig()
    rig.turn(after_s=0.2)
    rig.arrive("a", outputs=100)
    rig.turn(split(partition_id=2, admit=("a",), prefill_layers=4), after_s=0.0)
    start = rig.loop.prefill.running.quanta[0].start
    rig.device.finish(start)
    rig.clock.now_s += 0.05
    rig.device.finish_prefill()
    rig.turn(after_s=0.0)
    rig.turn(after_s=0.06)
    before, stats = rig.link.of(EngineStats)
    interval_s = stats.uptime_s - before.uptime_s
    assert 0.1 <= interval_s < 0.12
    # 96 of 132 SMs for 50 ms.
    assert stats.sm_busy_prefill_ratio == pytest.approx(0.05 / interval_s * 96 / 132)
    assert stats.sm_busy_decode_ratio == 0.0


def test_the_gap_between_two_steps_is_measured_from_the_end_of_the_one_in_flight():
    rig = Rig()
    rig.decoding("a", outputs=100)
    rig.turn(split(decode_steps=1))
    first = rig.port.unread[0]
    rig.device.finish(first.start)
    rig.clock.now_s += 0.02
    rig.device.finish(first.end)
    rig.turn(split(decode_steps=1), after_s=0.0)
    second = rig.port.unread[0]
    rig.clock.now_s += 0.005
    rig.device.finish(second.start)
    rig.clock.now_s += 0.02
    rig.device.finish(second.end)
    rig.turn(after_s=0.0)
    steps = [record for record in rig.link.of(IterationRecord) if record.decode_bs]
    assert [step.measured_step_s for step in steps] == pytest.approx([0.02, 0.025])
    # What passed until the second began is not decode's: a guard that learned it would be of the host.
    assert [step.measured_decode_s for step in steps] == pytest.approx([0.02, 0.02])


def test_a_prefill_that_ran_beside_decode_is_no_measurement_of_a_prefill_alone():
    rig = Rig()
    rig.arrive("a", outputs=100)
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    rig.device.finish_prefill()
    rig.arrive("b")
    rig.turn(split(admit=("b",), decode_steps=1, prefill_layers=4))
    rig.device.finish_prefill()
    rig.turn(split(decode_steps=1))
    alone, colocated_step = (
        record for record in rig.link.of(IterationRecord) if record.prefill_layers and not record.decode_steps
    )
    assert alone.measured_prefill_s is not None
    assert colocated_step.measured_prefill_s is None
    assert colocated_step.measured_step_s is not None


def test_who_has_no_first_token_is_told_with_each_heartbeat():
    rig = Rig()
    rig.arrive("a", tenant="chat")
    rig.arrive("b", tenant="chat")
    rig.arrive("c", tenant="batch")
    rig.decoding("d", outputs=4)
    rig.turn(after_s=100.0)
    queues = {queue.tenant: queue for queue in rig.link.of(TenantQueues)[-1].queues}
    assert {name: (queue.waiting, queue.late) for name, queue in queues.items()} == {
        "chat": (2, 2),
        "batch": (1, 1),
    }
    assert queues["chat"].oldest_wait_s >= 100.0
    assert len(rig.link.of(TenantQueues)) == len(rig.link.of(EngineStats))
