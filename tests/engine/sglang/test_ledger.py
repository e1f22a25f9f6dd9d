"""Every request ends once, also one that SGLang drops before anybody has looked."""

from types import SimpleNamespace

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
