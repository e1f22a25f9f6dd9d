"""Tensor parallelism: rank 0 decides, the others do the same, and their prefix caches stay alike."""

import pickle
from collections import deque

import pytest
from engine_rig import IDLE, Rig, fused, settings, split

from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.link.messages import EngineStats
from pdmuxd.engine.loop.launches import SHARED_QUANTUM_LAYERS
from pdmuxd.engine.sglang.reporting import LISTEN_BUSY_S

POINT = Measure(
    point_id=3, mode="decode", prefill_sms=0, decode_sms=132, prefill=(), decode=(100,), repeats=1
)


class Ranks:
    """Two ranks on a wire; both get the same input, as SGLang sees to."""

    def __init__(self, policy=None):
        self.wire = deque()
        self.measured = []
        self.first = Rig(policy, wire=self.wire, measure=lambda point: self.measure("first", point))
        self.second = Rig(
            policy, first=False, wire=self.wire, measure=lambda point: self.measure("second", point)
        )
        self.both = (self.first, self.second)

    def measure(self, rank, point):
        self.measured.append((rank, point))
        return Measured(point_id=point.point_id, decode_s=(0.5,))

    def arrive(self, name, **fields):
        return [rig.arrive(name, **fields) for rig in self.both]

    def decoding(self, name):
        """A request that decodes, a step of it in flight."""
        self.arrive(name, outputs=100)
        self.turn(split(partition_id=0, admit=(name,), prefill_layers=4))
        self.first.device.finish_prefill()
        self.turn(split(decode_steps=1))

    def abort(self, requests):
        for rig, request in zip(self.both, requests, strict=True):
            rig.abort(request)

    def turn(self, decision=None):
        self.first.turn(decision)
        self.second.turn()
        assert not self.wire

    def assert_alike(self):
        assert self.second.port.log == self.first.port.log
        assert self.second.port.looked_up == self.first.port.looked_up
        assert len(self.second.loop.ledger) == len(self.first.loop.ledger)
        assert self.second.loop.is_busy == self.first.loop.is_busy


@pytest.fixture
def ranks():
    return Ranks()


def test_the_other_rank_launches_and_reads_the_same_in_the_same_order(ranks):
    ranks.arrive("z", outputs=100)
    ranks.turn(split(partition_id=0, admit=("z",), prefill_layers=4))
    ranks.first.device.finish_prefill()
    ranks.arrive("long", outputs=3)
    ranks.turn(split(admit=("long",), decode_steps=1, prefill_layers=1))
    ranks.arrive("short", tokens=4, outputs=1)
    ranks.turn(split(partition_id=3, admit=("short",), preempt=True, decode_steps=1, prefill_layers=4))
    ranks.first.device.finish_prefill()
    ranks.turn(split(partition_id=3, resume=True, decode_steps=1, prefill_layers=3))
    ranks.first.device.finish_prefill()
    ranks.turn(split(decode_steps=1))
    ranks.arrive("chunks", tokens=40, outputs=1)
    for _ in range(3):
        ranks.turn(fused(16, admit=("chunks",), decode_steps=1))
    ranks.turn(IDLE)
    ranks.assert_alike()
    kinds = {entry[0] for entry in ranks.first.port.log}
    assert {"group", "decode", "layers", "finish", "fused", "read"} <= kinds
    assert len(ranks.first.records) == 3


def test_every_rank_stops_between_layers_when_the_first_has_tokens(ranks):
    ranks.decoding("z")
    ranks.arrive("a")
    first, second = ranks.first.port, ranks.second.port
    first.layers = second.layers = 20
    first.after_layers = lambda: ranks.first.device.finish(first.unread[0].end)
    ranks.turn(split(admit=("a",), decode_steps=1, prefill_layers=18))
    assert second.unread[0].end.done_s is None, "the second rank's device is not as far"
    first.after_layers = lambda: None
    ranks.turn(split(decode_steps=1, prefill_layers=14))
    layers = [entry[1] for entry in second.log if entry[0] == "layers"][1:]
    assert layers == [SHARED_QUANTUM_LAYERS] * 4 + [2]
    ranks.assert_alike()


def test_the_other_rank_launches_a_prefill_behind_another_too(ranks):
    ranks.decoding("z")
    ranks.arrive("a")
    ranks.turn(split(admit=("a",), decode_steps=1, prefill_layers=4))
    ranks.arrive("b")
    ranks.first.script.answers.append(split(decode_steps=1))
    ranks.turn(split(admit=("b",), decode_steps=1, prefill_layers=4))
    assert ranks.second.launches("layers")[-1] == (4, "b")
    assert not ranks.second.launches("finish")[1:], "on no rank the first is done"
    ranks.first.device.finish_prefill()
    ranks.turn(split(decode_steps=1))
    ranks.turn(split(decode_steps=1))
    assert ranks.second.launches("finish")[1:] == [("a",), ("b",)]
    ranks.assert_alike()


def test_the_other_rank_waits_for_its_own_device_when_rank_0_saw_the_prefill_finished(ranks):
    ranks.arrive("a", outputs=100)
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    ranks.turn(split(partition_id=0))
    assert ranks.second.launches("finish") == []
    ranks.first.device.finish_prefill()
    ranks.turn(split(decode_steps=1))
    assert ranks.first.device.blocked == []
    assert len(ranks.second.device.blocked) == 1
    ranks.assert_alike()


def test_every_rank_waits_for_its_own_device_when_a_merge_is_to_block(ranks):
    ranks.arrive("a", outputs=100)
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=4, blocking_merge=True))
    assert [len(rig.device.blocked) for rig in ranks.both] == [1, 1]
    ranks.turn(split(decode_steps=1))
    assert ranks.second.launches("decode") == [("a",)]
    ranks.assert_alike()


def test_the_other_rank_waits_for_its_own_device_when_a_prefill_is_dropped(ranks):
    requests = ranks.arrive("a")
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=2))
    ranks.abort(requests)
    ranks.first.device.finish_prefill()
    ranks.turn()
    assert ranks.second.launches("drop") == [("a",)]
    ranks.assert_alike()


def test_the_prefill_of_the_other_rank_stays_when_its_device_alone_is_done(ranks):
    ranks.arrive("a")
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    ranks.second.device.finish_prefill()
    ranks.turn(split(partition_id=0))
    assert ranks.second.launches("finish") == []


def test_every_rank_looks_into_the_prefix_cache_the_same_way(ranks):
    ranks.arrive("a")
    ranks.arrive("b")
    ranks.turn(IDLE)
    ranks.first.port.cache["a"] = ranks.second.port.cache["a"] = 4
    for decision in (
        split(partition_id=0, admit=("a", "b")),
        split(partition_id=0, admit=("b",), prefill_layers=4),
    ):
        ranks.first.script.answers.append(decision)
    ranks.turn()
    assert ranks.first.port.looked_up == ["a", "b", "a", "b"]
    assert ranks.first.launches("layers") == [(4, "b")], "decided anew: a looks different"
    ranks.assert_alike()


def test_every_rank_looks_into_the_prefix_cache_the_same_way_when_requests_are_aborted(ranks):
    waiting = ranks.arrive("waits")
    ranks.turn(IDLE)
    ranks.abort(waiting)
    ranks.abort(ranks.arrive("gone at once"))
    ranks.turn()
    ranks.arrive("next")
    ranks.turn(IDLE)
    ranks.assert_alike()
    assert ranks.first.port.looked_up == ["waits", "gone at once", "next"]


def test_every_rank_looks_into_the_prefix_cache_the_same_way_when_targets_change(ranks):
    ranks.arrive("a")
    ranks.turn(IDLE)
    ranks.first.link.inbox.append(settings(1))
    ranks.turn(IDLE)
    assert ranks.first.loop.policy_runtime.settings_version == 1
    ranks.assert_alike()


def test_every_rank_drains_the_same_when_sglang_pauses(ranks):
    ranks.arrive("z", outputs=100)
    ranks.turn(fused(64, admit=("z",)))
    ranks.arrive("a", outputs=100)
    ranks.turn(split(admit=("a",), decode_steps=1, prefill_layers=1))
    ranks.first.device.finish_prefill()
    for rig in ranks.both:
        rig.port.inbox.append(rig.loop.drain)
    ranks.turn(split(decode_steps=1))
    ranks.turn(IDLE)
    assert ranks.first.launches("decode") == [("z",), ("z", "a")]
    ranks.assert_alike()


def test_every_rank_measures_in_the_same_turn_and_rank_0_answers(ranks):
    ranks.first.link.inbox.append(POINT)
    ranks.turn()
    assert ranks.measured == [("first", POINT), ("second", POINT)]
    assert ranks.first.link.of(Measured) == [Measured(point_id=3, decode_s=(0.5,))]
    assert ranks.second.link.sent == []
    ranks.arrive("a")
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    assert ranks.second.launches("layers") == [(4, "a")]
    ranks.assert_alike()


def test_no_rank_measures_when_rank_0_must_refuse(ranks):
    ranks.arrive("a")
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    ranks.first.link.inbox.append(POINT)
    ranks.first.clock.now_s += LISTEN_BUSY_S
    ranks.turn()
    (answer,) = ranks.first.link.of(Measured)
    assert answer.error == "the engine is serving; it measures while idle"
    assert ranks.measured == []
    ranks.assert_alike()


def test_what_one_rank_tells_the_others_can_be_sent(ranks):
    ranks.first.link.inbox.append(POINT)
    ranks.turn()
    (turn,) = ranks.first.port.turns
    assert pickle.loads(pickle.dumps(turn)) == turn
    assert turn.measure == POINT


def test_only_rank_0_speaks_and_asks_the_policy(ranks):
    ranks.arrive("a", outputs=1)
    for _ in range(30):
        ranks.turn(
            split(partition_id=0, admit=("a",), prefill_layers=4) if ranks.first.port.waiting else None
        )
        ranks.first.device.finish_prefill()
    assert ranks.first.link.of(EngineStats)
    assert ranks.second.link.sent == []
    assert ranks.second.script.seen == []


def test_the_ranks_stay_alike_when_a_real_policy_serves_requests_that_come_and_go():
    ranks = Ranks("static:96,36")
    made = []
    for number in range(40):
        made.append(ranks.arrive(f"r{number}", tokens=50 * (1 + number % 7), outputs=1 + number % 5))
        if number % 6 == 5:
            ranks.abort(made[number - 2])
        if number == 20:
            ranks.first.link.inbox.append(settings(1, "chunked:64"))
        if number == 30:
            ranks.first.link.inbox.append(settings(2, "muxwise"))
        ranks.turn()
        # Each rank's device is as far as it likes.
        ranks.first.device.finish_prefill(marks=1 + number % 3)
        ranks.second.device.finish_prefill(marks=number % 4)
    while len(ranks.first.loop.ledger):
        ranks.turn()
        ranks.first.device.finish_prefill()
    ranks.turn()
    ranks.assert_alike()
    names = [record.request_id for record in ranks.first.records]
    assert sorted(names) == sorted(f"r{number}" for number in range(40))
    outcomes = [record.outcome for record in ranks.first.records]
    assert 0 < outcomes.count("aborted") <= 6


def test_every_rank_looks_into_the_prefix_cache_once_when_a_request_is_admitted_as_it_comes(ranks):
    ranks.arrive("a")
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    assert ranks.first.port.looked_up == ["a"]
    ranks.assert_alike()


def test_every_rank_looks_into_the_prefix_cache_again_when_a_prefill_is_merged_as_a_request_comes(ranks):
    ranks.arrive("a")
    ranks.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    ranks.first.device.finish_prefill()
    ranks.second.device.finish_prefill()
    ranks.arrive("b")
    ranks.turn(split(partition_id=0, admit=("b",), prefill_layers=4))
    assert ranks.first.launches("finish") == [("a",)]
    assert ranks.first.port.looked_up == ["a", "b", "b"]
    ranks.assert_alike()
