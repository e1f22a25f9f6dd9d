"""The next step is launched before the last one's result is read, and at most one stays unread."""

import gc

from engine_rig import IDLE, Rig, fused, split


def test_the_next_step_is_launched_first_when_a_result_is_unread():
    rig = Rig()
    rig.decoding("a")
    rig.turns([split(decode_steps=1)] * 3)
    assert [entry[0] for entry in rig.port.log if entry[0] in ("decode", "read")] == [
        *("decode", "decode", "read", "decode", "read")
    ]
    assert len(rig.port.unread) == 1


def test_at_most_one_result_is_unread_when_each_turn_launches():
    rig = Rig()
    rig.decoding("a", "b")
    rig.turns([split(decode_steps=1)] * 3 + [fused(0, decode_steps=1)] * 2)
    # Two between the launch and the read of one turn; never more.
    assert rig.port.most_unread == 2
    assert len(rig.port.unread) == 1


def test_the_last_result_is_read_when_nothing_is_launched():
    rig = Rig()
    rig.decoding("a")
    rig.turn(split(decode_steps=1))
    assert rig.loop.is_busy
    rig.turn(IDLE)
    assert not rig.port.unread
    assert not rig.loop.is_busy


def test_the_engine_forgets_its_last_batch_when_nothing_is_launched():
    rig = Rig()
    rig.decoding("a")
    rig.turn(split(decode_steps=1))
    assert rig.port.last is not None
    rig.turn(IDLE)
    assert rig.port.last is None


def test_the_gap_of_the_decode_batch_runs_from_the_step_that_was_read_last():
    rig = Rig()
    rig.arrive("a", outputs=100)
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    rig.device.finish_prefill()
    seen = rig.turn(split(decode_steps=1))
    assert seen.last_token_s == seen.now_s, "the merged prefill's first token, since nothing decoded"
    merged_s = seen.now_s
    assert rig.turn(split(decode_steps=1)).last_token_s == merged_s
    read_s = rig.clock.now_s
    assert rig.turn(split(decode_steps=1)).last_token_s == read_s


def test_the_loop_rests_and_keeps_house_only_when_nothing_is_in_flight():
    rig = Rig()
    rig.turn()
    assert rig.launches("idle") == [()]
    assert rig.clock.slept == 1
    rig.decoding("a")
    slept = rig.clock.slept
    rig.turn(split(decode_steps=1))
    assert rig.clock.slept == slept
    assert rig.launches("idle") == []


def test_the_loop_polls_without_keeping_house_when_a_prefill_runs_alone():
    rig = Rig()
    rig.arrive("a")
    slept = rig.clock.slept
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    assert rig.clock.slept == slept + 1
    assert rig.launches("idle") == []
    assert rig.loop.is_busy


def test_a_request_that_ended_gets_no_more_tokens_when_a_step_with_it_was_already_launched():
    rig = Rig()
    (request,) = rig.decoding("a", outputs=2)
    rig.turns([split(decode_steps=1)] * 3)
    # The second step was launched before the first, the request's last, was read.
    assert rig.launches("decode") == [("a",), ("a",)]
    assert request.output_ids == [0, 1]
    assert [record.output_tokens for record in rig.records] == [2]


def test_a_pause_turns_nothing():
    rig = Rig()
    rig.decoding("a")
    rig.port.is_paused = True
    assert rig.turn(split(decode_steps=1)) is None
    assert rig.port.log == []


def test_the_loop_ends_when_sglang_stops():
    rig = Rig()
    rig.arrive("a")
    rig.port.inbox.append(lambda: setattr(rig.port, "is_stopping", True))
    rig.loop.run()
    assert len(rig.port.turns) == 1


def test_no_collection_looks_through_what_was_there_before_the_first_turn():
    rig = Rig()
    frozen = []

    def stop():
        frozen.append(gc.get_freeze_count())
        rig.port.is_stopping = True

    rig.port.inbox.append(stop)
    frozen_before = gc.get_freeze_count()
    kept = [[] for _ in range(10_000)]
    rig.loop.run()
    assert frozen[0] >= frozen_before + len(kept)
