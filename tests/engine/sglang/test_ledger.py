"""Every request ends once, also one that SGLang drops before anybody has looked."""

from types import SimpleNamespace

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.loop.requests import Target
from pdmuxd.engine.sglang.requests import Ledger


def request(name):
    return SimpleNamespace(
        rid=name,
        origin_input_ids=[5, 6, 7],
        output_ids=[],
        sampling_params=SimpleNamespace(custom_params={"pdmuxd_tenant": "acme"}),
    )


def test_a_request_ends_once_when_it_is_aborted_before_the_first_look():
    ended = []
    ledger = Ledger(lambda request: 1, ended.append)
    ledger.released(request("a"), 2.0)
    ledger.watch((), 3.0)
    (record,) = ended
    assert (record.request_id, record.tenant, record.outcome) == ("a", "acme", "aborted")
    assert (record.reused_tokens, record.new_tokens, record.ttft_s, record.queue_s) == (1, 2, None, None)
    assert len(ledger) == 0


def test_a_request_ends_once_when_it_is_aborted_in_the_queue():
    ended = []
    ledger = Ledger(lambda request: 0, ended.append)
    waiting = request("a")
    ledger.watch((waiting,), 1.0)
    ledger.released(waiting, 2.0)
    assert ended == []
    ledger.watch((), 3.0)
    assert [record.outcome for record in ended] == ["aborted"]


def test_a_request_keeps_its_own_targets_when_its_tenants_are_edited():
    ended = []
    ledger = Ledger(lambda request: 0, ended.append)
    waiting = request("a")
    waiting.sampling_params.custom_params |= {"pdmuxd_ttft_target_s": 0.25, "pdmuxd_tbt_target_s": 0.0125}
    ledger.watch((waiting, request("b")), 1.0)
    ledger.retarget({"acme": Target(slo=DEFAULT_SLO, version=7)})
    own, other = ledger.window(2)
    assert (own.deadline_s, own.tbt_target_s) == (1.25, 0.0125)
    assert other.tbt_target_s == DEFAULT_SLO.tbt_s
    ledger.watch((), 3.0)
    assert [(each.ttft_target_s, each.tbt_target_s, each.slo_version) for each in ended] == [
        (0.25, 0.0125, 7),
        (DEFAULT_SLO.ttft_target_s(3), DEFAULT_SLO.tbt_s, 7),
    ]


def test_a_whole_answer_with_a_target_is_due_by_its_usual_length_or_the_most_that_it_asks_for():
    ended = []
    ledger = Ledger(lambda request: 0, ended.append)
    usual, short = request("a"), request("b")
    for each, most in ((usual, None), (short, 10)):
        each.sampling_params.max_new_tokens = most
        each.sampling_params.custom_params |= {"pdmuxd_ttft_target_s": 2.0, "pdmuxd_e2e_target_s": 4.0}
    ledger.watch((request("c"),), 1.0)
    ledger.answers.begun(ledger.admitted(["c"], 1.0), 1.0)
    ledger.answers.decoded(100, {"acme": 1}, 1.0)
    ledger.watch((usual, short), 1.0)
    one, other = ledger.window(2)
    assert (one.deadline_s, one.ttft_deadline_s) == (2.5, 3.0)  # 100 tokens at 25 ms after it
    assert (other.deadline_s, other.ttft_deadline_s) == (3.0, None)
    usual.finished, usual.finished_reason = lambda: False, None
    ledger.admitted(["a"], 1.0)
    usual.output_ids = [1]
    ledger.give_tokens([usual], 2.0)
    assert ledger.tbt_target_s([usual]) == 0.5 * DEFAULT_SLO.tbt_s  # 3 s for 100 tokens, or 200
    usual.output_ids, usual.finished = [1, 2], lambda: True
    ledger.give_tokens([usual], 2.5)
    assert [(each.e2e_target_s, each.e2e_s) for each in ended] == [(4.0, 1.5)]


def test_a_slot_is_held_from_the_admission_to_the_end():
    ledger = Ledger(lambda request: 0, lambda record: None)
    first, second = request("a"), request("b")
    ledger.watch((first, second), 1.0)
    assert ledger.slots_held() == {}
    ledger.admitted(["a"], 2.0)
    assert ledger.slots_held() == {"acme": 1}
    first.finished, first.finished_reason = lambda: True, None
    ledger.give_tokens([first], 3.0)
    assert ledger.slots_held() == {}
