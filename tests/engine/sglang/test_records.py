"""One record for every request, whatever becomes of it (invariant 5)."""

import pytest
from engine_rig import IDLE, Rig, fused, split

from pdmuxd.engine.link.durations import bucket_of


def test_a_record_has_the_life_of_a_request_when_it_finishes():
    rig = Rig()
    rig.port.cache["a"] = 4
    rig.arrive("a", tokens=10, outputs=3)
    rig.turn(IDLE)  # at 0.01 s
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4), after_s=0.03 - rig.clock.now_s)
    rig.clock.now_s = 0.1
    rig.device.finish_prefill()
    rig.turn(split(decode_steps=1), after_s=0.0)
    rig.turn(split(decode_steps=1), after_s=0.04)
    rig.turn(IDLE, after_s=0.06)
    (record,) = rig.records
    assert (record.request_id, record.tenant, record.outcome) == ("a", "acme", "finished")
    assert (record.new_tokens, record.reused_tokens, record.output_tokens) == (6, 4, 3)
    assert record.queue_s == pytest.approx(0.02)
    assert record.ttft_s == pytest.approx(0.09)
    assert record.tbt_max_s == record.tbt_p99_s == pytest.approx(0.06)
    assert (record.tbt_gaps, record.tbt_gaps_met) == (2, 1), "one gap of 40 ms, one of 60 ms"
    assert record.tbt_counts == ((bucket_of(0.04), 1), (bucket_of(0.06), 1))
    assert record.retractions == 0
    assert len(rig.loop.ledger) == 0


def test_the_totals_are_those_of_all_requests():
    rig = Rig()
    rig.port.cache["b"] = 4
    rig.decoding("a", "b", outputs=2)
    rig.turns([split(decode_steps=1), IDLE])
    ledger = rig.loop.ledger
    assert (ledger.prompt_tokens, ledger.reused_prompt_tokens, ledger.output_tokens) == (20, 4, 4)


def test_a_request_goes_on_when_it_was_retracted():
    rig = Rig()
    (request,) = rig.decoding("a", outputs=4)

    def retract():
        rig.port.running = []
        request.extend_end = 0
        rig.port.waiting.append(request)

    rig.port.inbox.append(retract)
    seen = rig.turn(IDLE)
    (entry,) = seen.waiting
    assert entry.new_tokens == 11, "the token that it has is prefilled with its prompt"
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    rig.device.finish_prefill()
    rig.turns([split(decode_steps=1), split(decode_steps=1), IDLE])
    (record,) = rig.records
    assert (record.outcome, record.output_tokens, record.retractions) == ("finished", 4, 1)
    assert rig.loop.ledger.retractions == 1
    assert record.new_tokens == 10


def test_a_request_ends_once_when_it_was_retracted_and_is_aborted_in_the_queue():
    rig = Rig()
    (request,) = rig.decoding("a", outputs=100)
    rig.port.inbox.append(lambda: (rig.port.running.clear(), rig.port.waiting.append(request)))
    rig.turn(IDLE)
    rig.abort(request)
    rig.turn()
    rig.turn()
    assert [(record.outcome, record.retractions) for record in rig.records] == [("aborted", 1)]


def test_a_request_ends_once_when_it_is_aborted_in_the_queue():
    rig = Rig()
    request = rig.arrive("a")
    rig.turn()
    rig.abort(request)
    rig.turn()
    rig.turn()
    assert [(record.outcome, record.queue_s, record.ttft_s) for record in rig.records] == [
        ("aborted", None, None)
    ]


def test_a_request_ends_once_when_it_is_aborted_in_the_turn_in_which_it_came():
    rig = Rig()
    rig.abort(rig.arrive("a"))
    rig.turn()
    rig.turn()
    assert [record.outcome for record in rig.records] == ["aborted"]


def test_a_request_ends_once_when_it_is_aborted_while_it_decodes():
    rig = Rig()
    (request,) = rig.decoding("a", outputs=100)
    rig.turn(split(decode_steps=1))
    rig.abort(request)
    rig.turns([split(decode_steps=1), split(decode_steps=1), IDLE])
    assert [record.outcome for record in rig.records] == ["aborted"]
    assert rig.records[0].ttft_s is not None


def test_a_request_ends_once_when_it_is_aborted_in_its_chunks():
    rig = Rig()
    request = rig.arrive("a", tokens=40)
    rig.turn(fused(16, admit=("a",)))
    rig.abort(request)
    rig.turns([fused(16), fused(16), IDLE])
    assert [record.outcome for record in rig.records] == ["aborted"]


def test_demoted_requests_are_shown_behind_the_others():
    rig = Rig()
    for name in ("a", "b", "c"):
        rig.arrive(name)
    rig.turn(split(partition_id=0, deprioritize=("a",)))
    assert [entry.request_id for entry in rig.turn().waiting] == ["b", "c", "a"]


def test_an_eighth_of_the_window_is_for_deprioritized_ones_when_others_would_fill_it():
    rig = Rig()
    window = rig.engine_info.limits.waiting_window
    late = [f"late{number}" for number in range(window)]
    for name in late:
        rig.arrive(name)
    rig.turn(split(partition_id=0, deprioritize=tuple(late)))
    for number in range(window):
        rig.arrive(f"r{number}")
    seen = rig.turn()
    names = [entry.request_id for entry in seen.waiting]
    kept = window // 8
    assert names == [f"r{number}" for number in range(window - kept)] + late[:kept]
    assert seen.waiting_count == 2 * window


def test_the_strictest_target_among_decoding_requests_counts():
    rig = Rig()
    assert rig.turn() is None
    rig.arrive("w")
    assert rig.turn().tbt_target_s is None
    rig.port.waiting.clear()
    rig.decoding("a")
    assert rig.turn().tbt_target_s == 0.05
