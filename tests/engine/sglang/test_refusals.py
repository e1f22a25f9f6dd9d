"""Requests that the engine ends before it has begun them, and prompts in chunks that sit a step out."""

from __future__ import annotations

from dataclasses import replace

from engine_rig import Rig, split

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import Decision, Mode, Reason
from pdmuxd.engine.loop.requests import Target


def fused(rig: Rig, *admit: str, budget: int, waits: bool = False) -> Decision:
    return Decision(
        mode=Mode.FUSED,
        partition_id=rig.policy.table.decode_only,
        reason=Reason.FUSED_FITS,
        token_budget=budget,
        admit=admit,
        preempt=waits,
    )


def test_a_request_leaves_the_queue_with_a_record_of_the_cause_when_it_has_waited_too_long():
    rig = Rig("auto")
    rig.ledger.retarget({"acme": Target(slo=DEFAULT_SLO, version=1, max_wait_s=5.0)})
    rig.arrive("first", tokens=4000, outputs=1)
    rig.turn()
    rig.arrive("second", tokens=4000, outputs=1)
    rig.turn()
    rig.turn(after_s=6.0)
    rig.turn()
    assert rig.launches("refused") == [("second",)]
    assert [(r.request_id, r.outcome, r.cause) for r in rig.records] == [("second", "refused", "max_wait")]


def test_one_that_has_tokens_already_goes_on_when_it_waits_again():
    rig = Rig("auto")
    rig.ledger.retarget({"acme": Target(slo=DEFAULT_SLO, version=1, max_wait_s=1.0, late_action="refuse")})
    request = rig.arrive("a", tokens=40, outputs=8)
    rig.turn()
    tracked = rig.ledger.get("a")
    tracked.first_token_s = rig.clock.now_s
    entry = tracked.waiting_entry(0)
    assert not entry.refuses_late
    assert entry.expires_s == float("inf")
    assert request.rid == "a"


def test_a_prompt_in_chunks_goes_on_where_it_was_after_a_step_without_it():
    rig = Rig()
    rig.arrive("long", tokens=100, outputs=1)
    rig.turn(fused(rig, "long", budget=40))
    rig.arrive("short", tokens=30, outputs=1)
    rig.turn(fused(rig, "short", budget=30, waits=True))
    assert rig.port.chunked_request.rid == "long"
    rig.turn(fused(rig, budget=40))
    rig.turn(fused(rig, budget=40))
    assert [entry[1:] for entry in rig.launches("fused")] == [("long",), ("short",), ("long",), ("long",)]
    assert rig.port.chunked_request is None


def test_what_a_tenant_was_promised_is_in_force_for_those_that_wait():
    rig = Rig("auto")
    rig.arrive("first", tokens=4000, outputs=1)
    rig.turn()
    rig.arrive("a", tokens=40)
    rig.turn()
    target = Target(slo=DEFAULT_SLO, version=2)
    rig.ledger.retarget({"acme": replace(target, priority_class="batch", weight=3.0)})
    (entry,) = [e for e in rig.ledger.window(8) if e.request_id == "a"] or [rig.ledger.get("a").entry]
    assert (entry.priority_class, entry.weight) == ("batch", 3.0)


def test_a_late_request_ends_once_and_is_not_admitted_when_its_tenant_wants_no_late_answer():
    rig = Rig("auto")
    hopeless = replace(DEFAULT_SLO, ttft_fixed_s=0.001, ttft_per_1k_new_tokens_s=0.001)
    rig.ledger.retarget({"acme": Target(slo=hopeless, version=1, late_action="refuse")})
    rig.arrive("late", tokens=60_000, outputs=1)
    for _ in range(3):
        rig.turn(after_s=1.0)
    assert rig.launches("refused") == [("late",)]
    assert [entry for entry in rig.port.log if "late" in entry] == [("refused", "late")]
    assert [(r.request_id, r.outcome, r.cause) for r in rig.records] == [
        ("late", "refused", "deadline_unreachable")
    ]
    assert rig.ledger.get("late") is None


def test_decode_goes_on_in_the_turn_in_which_a_request_is_refused():
    rig = Rig()
    rig.decoding("a", outputs=50)
    rig.ledger.retarget({"acme": Target(slo=DEFAULT_SLO, version=1, max_wait_s=0.5)})
    rig.arrive("waits", tokens=4000, outputs=1)
    rig.turn(split(decode_steps=1))
    assert rig.launches("refused") == []
    rig.port.log.clear()
    rig.turn(split(decode_steps=1), after_s=1.0)
    assert rig.launches("refused") == [("waits",)]
    assert len(rig.launches("decode")) == 1


def test_who_may_wait_no_longer_is_not_ended_in_the_turn_that_begins_it():
    rig = Rig()
    rig.ledger.retarget({"acme": Target(slo=DEFAULT_SLO, version=1, max_wait_s=0.5)})
    rig.arrive("a", tokens=40, outputs=1)
    rig.turn()
    rig.turn(fused(rig, "a", budget=64), after_s=1.0)
    rig.turn(after_s=1.0)
    assert rig.launches("refused") == []
    assert [(r.request_id, r.outcome) for r in rig.records] == [("a", "finished")]
