"""The tables hold what they say: each field at, inside and beyond its range, on each path."""

import json

import pytest
from contract_cases import cases, drawn

from pdmuxd.daemon.gateway.bounds import RequestBounds
from pdmuxd.daemon.gateway.contract.tables import REFUSED, SAMPLING_PARAMS, TABLES
from pdmuxd.daemon.gateway.requests import rewrite
from pdmuxd.daemon.gateway.routes import TOKENIZING, Kind
from pdmuxd.daemon.gateway.tokenizing import checked
from pdmuxd.daemon.supervisor.address import EngineRanges
from pdmuxd.engine.core.errors import RequestError

VOCAB, CONTEXT = 512, 4096
RANGES = EngineRanges(vocab_size=VOCAB, max_context_tokens=CONTEXT)
ALL = tuple(cases("m", vocab=VOCAB, context=CONTEXT))
OWN = {"rid", "extra_key", "custom_params", "store"}
REWRITTEN = ("extra_key", "cache_salt", "sampling_params")


def sent(case, ranges=RANGES):
    return payload(case.kind, case.body, ranges)


def payload(kind, body, ranges=RANGES):
    """What the engine is sent."""
    asked = json.dumps(body).encode()
    if kind in TOKENIZING:
        kept, _ = checked(kind, asked, RequestBounds(), ranges)
        return json.loads(kept)
    return json.loads(rewrite(kind, asked, rid="r", tenant="t", ranges=ranges).payload)


def refusal(case, ranges=RANGES):
    try:
        sent(case, ranges)
    except RequestError as error:
        return error
    return None


def test_every_field_of_every_table_has_values_that_are_tried():
    tried = {(case.kind, case.field) for case in ALL}
    known = {(kind, name) for kind, table in TABLES.items() for name in table}
    known |= {(Kind.GENERATE, f"sampling_params.{name}") for name in SAMPLING_PARAMS}
    assert known - tried == set()


def test_every_value_beyond_its_range_is_refused_by_its_fields_name():
    assert len([case for case in ALL if not case.is_good]) > 500
    for case in ALL:
        if case.is_good:
            continue
        error = refusal(case)
        assert error is not None, case
        assert error.status == 400
        assert error.param is not None, case
        assert error.param.replace("sampling_params.", "").startswith(
            case.field.rpartition(".")[2].partition("[")[0]
        ), (case, error)
        assert "Traceback" not in str(error)


def test_every_value_within_its_range_passes_as_it_was_written():
    """One that is null is left out."""
    assert len([case for case in ALL if case.is_good]) > 150
    for case in ALL:
        if not case.is_good or case.is_open or case.field in REWRITTEN:
            continue
        body = sent(case)
        holder = body["sampling_params"] if case.field.startswith("sampling_params.") else body
        assert holder.get(case.field.rpartition(".")[2]) == case.value, case


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_field_is_refused_whatever_good_ones_stand_beside_it(seed):
    for case in drawn("m", vocab=VOCAB, context=CONTEXT, count=700, seed=seed):
        error = refusal(case)
        assert (error is None) == case.is_good or case.is_open, case
        assert error is None or error.param, case


def test_nothing_reaches_the_engine_that_is_in_no_table():
    engines = ("bootstrap_room", "session_id", "http_worker_ipc", "encoder_urls", "lora_id", "log_metrics")
    for kind, table in ((kind, TABLES[kind]) for kind in {case.kind for case in ALL}):
        base = next(case.body for case in ALL if case.kind is kind and case.is_good)
        body = {**base, **dict.fromkeys(engines, "x")}
        assert payload(kind, body).keys() <= table.keys() | OWN


@pytest.mark.parametrize(
    ("turn", "param"),
    [
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "nonsense"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages[0].content[0].text"),
    ],
)
def test_a_turn_is_refused_at_the_place_that_is_wrong(turn, param):
    """SGLang names the turn's role, since it tried the turn as others' before."""
    with pytest.raises(RequestError) as caught:
        payload(Kind.CHAT, {"model": "m", "messages": [turn]})
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_field_that_is_null_is_not_sent():
    """SGLang refuses `n` of null, which clients send for one that is not given."""
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": None, "stop": None}
    assert payload(Kind.CHAT, body).keys() == {"model", "messages", "extra_key", "rid", "custom_params"}


def test_a_field_that_asks_for_nothing_is_no_reason_to_refuse():
    for name in REFUSED:
        for value in (None, False, []):
            body = {"model": "m", "prompt": "x", name: value}
            asked = rewrite(Kind.COMPLETION, json.dumps(body).encode(), rid="r", tenant="t")
            assert name not in json.loads(asked.payload)


def test_an_engine_that_does_not_say_what_it_counts_in_gets_what_a_number_can_hold():
    body = json.dumps({"model": "m", "prompt": [5, 99_999_999], "max_tokens": 10**9}).encode()
    assert rewrite(Kind.COMPLETION, body, rid="r", tenant="t", ranges=EngineRanges()).outputs == 1


def test_a_request_that_came_before_its_engine_is_checked_when_the_engine_is_there():
    body = json.dumps({"model": "m", "prompt": [5, 99_999_999]}).encode()
    asked = rewrite(Kind.COMPLETION, body, rid="r", tenant="t", ranges=None)
    assert asked.check is not None
    with pytest.raises(RequestError, match=r"prompt\[1\]"):
        asked.check(RANGES)
    asked.check(EngineRanges())
