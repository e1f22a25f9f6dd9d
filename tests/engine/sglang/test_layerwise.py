"""A layer-wise prefill beside decode: launched in shares, merged by asking, set aside, dropped."""

import pytest
from engine_rig import IDLE, Rig, split

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.loop.launches import QUANTUM_LAYERS

COLOCATED = {"decode_steps": 1}


def started(rig, name="a", layers=2):
    """A prefill of some layers beside a decoding request."""
    rig.decoding("z", outputs=100)
    request = rig.arrive(name)
    rig.turn(split(admit=(name,), prefill_layers=layers, **COLOCATED))
    return request


def test_decode_is_launched_before_the_layers_beside_it():
    rig = Rig()
    started(rig)
    assert [entry[0] for entry in rig.port.log] == ["group", "decode", "layers"]


def test_a_finished_prefill_is_merged_by_asking_and_never_by_waiting():
    rig = Rig()
    request = started(rig, layers=4)
    for _ in range(3):
        rig.turn(split(**COLOCATED))
    assert rig.launches("finish") == []
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert rig.launches("finish") == [("a",)]
    assert rig.launches("decode")[-1] == ("z", "a")
    assert request.output_ids == [0]
    assert rig.device.blocked == []


def test_decode_is_ordered_behind_the_prefill_when_it_is_merged():
    rig = Rig()
    started(rig, layers=4)
    end = rig.loop.prefill.running.quanta[-1].end
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert ("decode1", end) in rig.device.ordered


def test_a_prefill_is_not_finished_when_layers_are_left_to_launch():
    rig = Rig()
    started(rig, layers=3)
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert rig.launches("finish") == []
    rig.turn(split(prefill_layers=3, **COLOCATED))
    assert rig.launches("layers")[-1] == (1, "a"), "only one of three was left"


def test_layers_beside_the_step_in_flight_count_as_done_when_a_policy_looks():
    rig = Rig()
    started(rig, layers=2)
    seen = rig.turn(split(prefill_layers=1, **COLOCATED))
    assert (seen.prefill.layers_launched, seen.prefill.layers_in_flight) == (2, 0)
    # Two turns later the first two are a backlog, unless the device has passed them.
    seen = rig.turn(split(**COLOCATED))
    assert (seen.prefill.layers_launched, seen.prefill.layers_in_flight) == (3, 2)
    rig.device.finish_prefill(marks=2)
    assert rig.turn(split(**COLOCATED)).prefill.layers_in_flight == 1
    rig.device.finish_prefill()
    assert rig.turn(split(**COLOCATED)).prefill.layers_in_flight == 0


def many_layers(rig, layers=20):
    """A prefill that takes longer to launch than a decode step takes, and the step before it in flight."""
    rig.decoding("z", outputs=100)
    rig.turn(split(**COLOCATED))
    rig.arrive("a")
    rig.port.layers = layers
    rig.port.log.clear()


def test_tokens_are_passed_on_and_the_next_step_is_launched_when_they_come_between_layers():
    rig = Rig()
    many_layers(rig)
    rig.port.after_layers = lambda: rig.device.finish(rig.port.unread[0].end)
    rig.turn(split(admit=("a",), prefill_layers=20, **COLOCATED))
    rig.port.after_layers = lambda: None
    rig.turn(split(prefill_layers=20, **COLOCATED))
    what = [entry[:2] for entry in rig.port.log]
    first = what.index(("layers", QUANTUM_LAYERS))
    assert what[first + 1 : first + 3] == [("read", "z"), ("decode", "z")]
    assert sum(layers for what, layers in what if what == "layers") == 20


def test_tokens_are_passed_on_before_any_layer_when_they_came_while_its_batch_was_formed():
    rig = Rig()
    many_layers(rig)
    rig.device.finish(rig.port.unread[0].end)
    rig.turn(split(admit=("a",), prefill_layers=20, **COLOCATED))
    assert rig.launches("layers") == []
    assert rig.port.log[-1] == ("read", "z")
    # However fast tokens come, a turn that forms nothing launches layers.
    rig.device.finish(rig.port.unread[0].end)
    rig.turn(split(prefill_layers=20, **COLOCATED))
    assert rig.launches("layers") == [(QUANTUM_LAYERS, "a")]


def test_all_layers_are_launched_when_no_tokens_come():
    rig = Rig()
    many_layers(rig)
    rig.turn(split(admit=("a",), prefill_layers=18, **COLOCATED))
    assert sum(layers for layers, _ in rig.launches("layers")) == 18
    assert rig.port.log[-1] == ("read", "z")


def test_a_step_tells_the_layers_that_were_launched_beside_it_when_tokens_came_sooner():
    rig = Rig()
    many_layers(rig)
    rig.port.after_layers = lambda: rig.device.finish(rig.port.unread[0].end)
    rig.turn(split(admit=("a",), prefill_layers=20, **COLOCATED))
    rig.turn(split(**COLOCATED))
    assert rig.link.of(IterationRecord)[-1].prefill_layers == QUANTUM_LAYERS


def test_layers_count_as_in_flight_when_no_step_runs_beside_them():
    rig = Rig()
    rig.arrive("a")
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=2))
    assert rig.turn(split(partition_id=0)).prefill.layers_in_flight == 2


def test_several_steps_ahead_share_the_layers():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.turn(split(admit=("a",), decode_steps=2, prefill_layers=3))
    rig.turn(split(decode_steps=3, prefill_layers=2))
    assert rig.launches("layers") == [(2, "a"), (1, "a")]


def test_nothing_is_launched_of_a_prefill_that_does_not_fit():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.port.does_not_fit.add("a")
    rig.turn(split(admit=("a",), prefill_layers=2, **COLOCATED))
    assert rig.launches("layers") == []
    assert rig.loop.prefill.members() == []
    assert [request.rid for request in rig.port.waiting] == ["a"]
    assert [entry.request_id for entry in rig.turn(IDLE).waiting] == ["a"]


def test_a_preempted_prefill_is_resumed_where_it_was_and_finishes():
    rig = Rig()
    started(rig, "long", layers=1)
    rig.arrive("short")
    seen = rig.turn(split(admit=("short",), preempt=True, prefill_layers=4, **COLOCATED))
    assert seen.preempted is None
    seen = rig.turn(split(**COLOCATED))
    assert [entry.request_id for entry in seen.preempted.requests] == ["long"]
    rig.device.finish_prefill()
    seen = rig.turn(split(resume=True, prefill_layers=3, **COLOCATED))
    assert seen.prefill is None
    seen = rig.turn(split(**COLOCATED))
    assert (seen.prefill.was_preempted, seen.prefill.layers_launched, seen.preempted) == (True, 4, None)
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    launched = [name for layers, name in rig.launches("layers") for _ in range(layers)]
    assert launched == ["long"] + ["short"] * 4 + ["long"] * 3
    assert rig.launches("finish") == [("short",), ("long",)]
    assert rig.loop.counters().preemptions == 1


def test_a_prefill_is_set_aside_again_when_it_was_resumed():
    rig = Rig()
    started(rig, "long", layers=1)
    for name in ("short", "again"):
        rig.arrive(name)
        rig.turn(split(admit=(name,), preempt=True, prefill_layers=4, **COLOCATED))
        rig.device.finish_prefill()
        rig.turn(split(resume=True, **COLOCATED))
    rig.turn(split(prefill_layers=3, **COLOCATED))
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert rig.launches("finish") == [("short",), ("again",), ("long",)]
    assert rig.loop.counters().preemptions == 2


def set_aside(rig, count):
    """So many prefills that have overtaken each other, a layer of each launched and done."""
    requests = [started(rig, "p0", layers=1)]
    for number in range(1, count + 1):
        requests.append(rig.arrive(f"p{number}"))
        rig.turn(split(admit=(f"p{number}",), preempt=True, prefill_layers=1, **COLOCATED))
        rig.device.finish_prefill()
    return requests


def test_who_overtakes_is_overtaken_and_the_last_one_set_aside_goes_on_first():
    rig = Rig()
    set_aside(rig, 3)
    seen = rig.turn(split(prefill_layers=3, **COLOCATED))
    assert [unit.requests[0].request_id for unit in seen.under_way] == ["p3", "p2", "p1", "p0"]
    for _ in range(3):
        rig.device.finish_prefill()
        rig.turn(split(resume=True, prefill_layers=3, **COLOCATED))
    rig.device.finish_prefill()
    assert rig.turn(split(**COLOCATED)).under_way == ()
    assert rig.launches("finish") == [("p3",), ("p2",), ("p1",), ("p0",)]
    assert rig.loop.counters().preemptions == 3


def test_no_more_are_set_aside_than_the_limit():
    rig = Rig()
    set_aside(rig, EngineLimits().max_set_aside)
    rig.arrive("shorter")
    with pytest.raises(EngineInvariantError):
        rig.turn(split(admit=("shorter",), preempt=True, **COLOCATED))


@pytest.mark.parametrize("gone", range(4))
def test_the_others_go_on_when_one_of_those_set_aside_is_aborted(gone):
    rig = Rig()
    requests = set_aside(rig, 3)
    rig.abort(requests[gone])
    rig.turn(split(**COLOCATED))
    assert rig.launches("drop") == [(f"p{gone}",)]
    left = [f"p{number}" for number in (3, 2, 1, 0) if number != gone]
    for number, name in enumerate(left):
        is_running = not number and gone != 3
        rig.turn(split(resume=not is_running, prefill_layers=3, **COLOCATED))
        rig.device.finish_prefill()
        rig.turn(split(**COLOCATED))
        assert rig.launches("finish")[-1] == (name,)
    assert not rig.loop.prefill.members()


def test_another_goes_first_when_what_overtook_is_done():
    rig = Rig()
    set_aside(rig, 1)
    rig.turn(split(prefill_layers=3, **COLOCATED))
    rig.device.finish_prefill()
    rig.arrive("urgent")
    rig.turn(split(admit=("urgent",), prefill_layers=4, **COLOCATED))
    rig.device.finish_prefill()
    rig.turn(split(resume=True, prefill_layers=3, **COLOCATED))
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert rig.launches("finish") == [("p1",), ("urgent",), ("p0",)]
    assert rig.loop.counters().preemptions == 1


def test_the_one_set_aside_goes_on_when_what_would_go_first_does_not_fit():
    rig = Rig()
    set_aside(rig, 1)
    rig.turn(split(prefill_layers=3, **COLOCATED))
    rig.device.finish_prefill()
    rig.arrive("urgent")
    rig.port.does_not_fit.add("urgent")
    rig.turn(split(admit=("urgent",), prefill_layers=4, **COLOCATED))
    assert rig.launches("layers")[-1] == (1, "p0")


def test_the_preempted_prefill_goes_on_when_what_overtakes_it_does_not_fit():
    rig = Rig()
    started(rig, "long", layers=1)
    rig.arrive("short")
    rig.port.does_not_fit.add("short")
    rig.turn(split(admit=("short",), preempt=True, prefill_layers=1, **COLOCATED))
    assert rig.launches("layers") == [(1, "long"), (1, "long")]
    assert rig.loop.prefill.set_aside == []


def test_an_abandoned_prefill_is_dropped_only_when_nothing_of_it_is_in_flight():
    rig = Rig()
    request = started(rig, layers=2)
    rig.abort(request)
    rig.turn(split(prefill_layers=2, **COLOCATED))
    assert rig.launches("layers") == [(2, "a")], "no more layers for nobody"
    assert rig.launches("drop") == []
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert rig.launches("drop") == [("a",)]
    assert [(record.request_id, record.outcome) for record in rig.records] == [("a", "aborted")]
    assert rig.device.blocked == []


def test_a_preempted_prefill_is_dropped_when_its_requests_are_aborted():
    rig = Rig()
    request = started(rig, "long", layers=1)
    rig.arrive("short")
    rig.turn(split(admit=("short",), preempt=True, prefill_layers=1, **COLOCATED))
    rig.device.finish_prefill(marks=2)
    rig.abort(request)
    rig.turn(split(**COLOCATED))
    assert rig.launches("drop") == [("long",)]
    assert rig.loop.prefill.set_aside == []
    assert [batch.batch.reqs[0].rid for batch in rig.loop.prefill.members()] == ["short"]


def test_an_abandoned_prefill_that_is_done_ends_by_its_result():
    rig = Rig()
    request = started(rig, layers=4)
    rig.abort(request)
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert (rig.launches("finish"), rig.launches("drop")) == ([("a",)], [])
    assert [record.outcome for record in rig.records] == ["aborted"]


def test_the_prefill_goes_on_when_only_some_of_its_requests_are_aborted():
    rig = Rig()
    rig.decoding("z", outputs=100)
    gone = rig.arrive("gone")
    rig.arrive("stays")
    rig.turn(split(admit=("gone", "stays"), prefill_layers=1, **COLOCATED))
    rig.abort(gone)
    rig.device.finish_prefill()
    rig.turn(split(prefill_layers=3, **COLOCATED))
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert rig.launches("finish") == [("gone", "stays")]
    assert [(record.request_id, record.outcome) for record in rig.records] == [("gone", "aborted")]
    assert rig.launches("decode")[-1] == ("z", "stays")


def test_the_last_layer_is_waited_for_when_the_policy_wants_a_blocking_merge():
    rig = Rig()
    started(rig, layers=2)
    rig.device.finish_prefill()
    rig.turn(split(blocking_merge=True, **COLOCATED))
    assert rig.device.blocked == [], "the last layer was not launched yet"
    rig.turn(split(prefill_layers=2, blocking_merge=True, **COLOCATED))
    assert len(rig.device.blocked) == 1
    assert [entry[0] for entry in rig.port.log[-3:]] == ["decode", "layers", "read"]
    rig.turn(split(**COLOCATED))
    assert [entry[0] for entry in rig.port.log[-4:]] == ["finish", "decode", "read", "first"]
    assert rig.launches("decode")[-1] == ("z", "a")
