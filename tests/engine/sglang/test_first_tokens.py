"""First tokens of a prefill that ran beside decode go out with the step in flight: see `Results`."""

from engine_rig import Rig, split

COLOCATED = {"decode_steps": 1}


def prefilled(rig, outputs=8):
    """A prefill whose layers are all launched and done, beside a request that decodes."""
    rig.decoding("z", outputs=100)
    request = rig.arrive("a", outputs=outputs)
    rig.turn(split(admit=("a",), prefill_layers=4, **COLOCATED))
    rig.device.finish_prefill()
    rig.port.log.clear()
    return request


def kinds(rig):
    return [entry[0] for entry in rig.port.log]


def test_the_second_token_comes_a_step_after_the_first_when_a_step_was_in_flight():
    rig = Rig()
    prefilled(rig)
    rig.turn(split(**COLOCATED), after_s=0.03)
    assert kinds(rig) == ["finish", "decode", "read", "first"]
    assert rig.port.log[1] == ("decode", "z", "a")
    assert rig.port.log[2] == ("read", "z"), "the step in flight does not hold the new request"
    first_s = rig.ledger.get("a").first_token_s
    rig.turn(split(**COLOCATED), after_s=0.03)
    assert rig.port.log[-1] == ("read", "z", "a")
    assert rig.clock.now_s - rig.loop._start_s - first_s == 0.03


def test_a_request_is_done_with_its_first_token_when_that_was_all_it_wanted():
    rig = Rig()
    prefilled(rig, outputs=1)
    rig.turn(split(**COLOCATED))
    assert kinds(rig) == ["finish", "decode", "read", "first"]
    assert [record.request_id for record in rig.records] == ["a"]


def test_first_tokens_are_not_held_when_nothing_decodes():
    rig = Rig()
    rig.arrive("a")
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    rig.device.finish_prefill()
    rig.port.log.clear()
    rig.turn(split(**COLOCATED))
    assert kinds(rig)[:2] == ["finish", "first"]
