"""Group switches: the streams are ordered on the device, and nothing is drained for it."""

from engine_rig import Rig, fused, split


def switches(rig):
    return [entry[1] for entry in rig.port.log if entry[0] == "group"]


def test_the_new_streams_wait_for_the_old_ones_when_the_group_changes():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.device.ordered.clear()
    rig.turn(split(partition_id=2, decode_steps=1))
    assert rig.device.ordered == [("decode2", "decode0"), ("prefill2", "prefill0")]


def test_nothing_is_drained_when_the_group_changes():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.turn(split(partition_id=1, admit=("a",), decode_steps=1, prefill_layers=2))
    rig.turn(split(partition_id=3, decode_steps=1, prefill_layers=2))
    assert rig.device.blocked == []
    assert len(rig.port.unread) == 1
    assert rig.loop.prefill.running.layers_in_flight == 4
    assert rig.port.log[-4:] == [("group", 3), ("decode", "z"), ("layers", 2, "a"), ("read", "z")]


def test_the_group_is_left_alone_when_the_decision_names_it_again():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.turns([split(partition_id=2, decode_steps=1)] * 3)
    assert switches(rig) == [2]
    assert rig.loop.counters().switches == 1


def test_a_fused_step_runs_on_all_sms():
    rig = Rig()
    rig.arrive("a", outputs=100)
    rig.turn(fused(64, admit=("a",)))
    decode_only = rig.engine_info.table.decode_only
    assert switches(rig) == [decode_only]
    assert rig.port.unread[0].start.stream is rig.device.groups[decode_only].decode
    counters = rig.loop.counters()
    assert (counters.prefill_sms, counters.decode_sms) == (0, 132)


def test_a_policy_sees_the_group_of_its_own_table_when_its_streams_have_another_number():
    rig = Rig("static:48,84")
    (split_index,) = (
        index
        for index, group in enumerate(rig.device.groups)
        if (group.prefill_sms, group.decode_sms) == (48, 84)
    )
    assert split_index != 1, "the numbers are the same: nothing is tested"
    rig.arrive("a", tokens=4000, outputs=100)
    rig.turn()
    rig.device.finish_prefill()
    rig.turn()
    rig.arrive("b", tokens=4000)
    rig.turn()
    assert rig.port.stream_group == split_index
    assert rig.loop.counters().partition_id == 1
    assert (rig.loop.counters().prefill_sms, rig.loop.counters().decode_sms) == (48, 84)
