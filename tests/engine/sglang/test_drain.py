"""What SGLang's other commands need: everything off the device, and the truth about what is on it."""

from engine_rig import Rig, fused, split


def test_a_drain_reads_every_step_and_merges_every_prefill():
    rig = Rig()
    (decoding,) = rig.decoding("z", outputs=100)
    rig.arrive("long")
    rig.turn(split(admit=("long",), decode_steps=1, prefill_layers=1))
    rig.arrive("short")
    rig.turn(split(admit=("short",), preempt=True, decode_steps=1, prefill_layers=2))
    rig.loop.drain()
    assert rig.launches("layers") == [(1, "long"), (2, "short"), (2, "short"), (3, "long")]
    assert rig.launches("finish") == [("short",), ("long",)]
    assert len(decoding.output_ids) == 3
    assert not rig.port.unread
    assert not rig.loop.is_busy
    assert [request.rid for request in rig.port.running] == ["z", "short", "long"]


def test_a_prefill_is_drained_when_no_layer_of_it_was_launched():
    rig = Rig()
    rig.arrive("a")
    rig.turn(split(partition_id=0, admit=("a",)))
    rig.loop.drain()
    assert rig.launches("finish") == [("a",)]


def test_a_prefill_is_drained_when_its_requests_were_aborted():
    rig = Rig()
    request = rig.arrive("a")
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=1))
    rig.abort(request)
    rig.port.inbox.append(rig.loop.drain)
    rig.turn()
    assert [record.outcome for record in rig.records] == ["aborted"]
    assert not rig.loop.is_busy


def test_no_batch_is_left_whose_result_sglang_would_look_for_when_it_was_drained():
    rig = Rig()
    rig.arrive("a", outputs=100)
    rig.turn(fused(64, admit=("a",)))
    rig.loop.drain()
    assert rig.port.last is None
    assert [request.rid for request in rig.port.running] == ["a"]


def test_the_loop_goes_on_when_a_pause_is_over():
    rig = Rig()
    (request,) = rig.decoding("z", outputs=100)
    rig.turn(split(decode_steps=1))
    rig.port.inbox.append(rig.loop.drain)
    rig.turn(split(decode_steps=1))
    rig.turn(split(decode_steps=1))
    assert rig.launches("decode") == [("z",)] * 3
    assert len(request.output_ids) == 3


def test_the_engine_is_busy_when_a_step_or_a_prefill_is_in_flight():
    rig = Rig()
    assert not rig.loop.is_busy
    rig.arrive("a", outputs=2)
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    assert rig.loop.is_busy
    rig.device.finish_prefill()
    rig.turn()
    assert not rig.loop.is_busy
    rig.turn(split(decode_steps=1))
    assert rig.loop.is_busy
    rig.turn()
    assert not rig.loop.is_busy
    assert len(rig.records) == 1
