"""/v1/score: checked as all else, told whose it is, and counted as an answer for each item."""

import pytest

from pdmuxd.engine.link.request_tag import decode_tag

PATH = "/v1/score"
GOOD = {"model": "test-model", "query": "a", "items": ["b", "c"], "label_token_ids": [1, 2]}
AUTH = {"Authorization": "Bearer pdm_alice"}


def ask(setup, **fields):
    return setup.client.post(setup.url + PATH, json=GOOD | fields, headers=AUTH)


async def test_the_engine_is_told_whose_it_is_and_its_answer_is_passed_on(setup):
    setup.engine.say(b'{"scores":[[0.5],[0.5]]}')
    async with ask(setup, rid="mine", priority=5) as answer:
        assert (answer.status, await answer.read()) == (200, b'{"scores":[[0.5],[0.5]]}')
        rid = answer.headers["x-request-id"]
    assert await setup.engine.seen.get() == GOOD
    tag = decode_tag(setup.engine.headers["x-pdmuxd-tag"])
    assert (tag.rid, tag.extra_key) == (rid, "tenant/alice/")
    assert tag.custom_params["pdmuxd_tenant"] == "alice"
    assert setup.gateway.admission.in_flight == 0


async def test_each_item_takes_a_place(setup, make_directory):
    setup.gateway.use_directory(make_directory(max_in_flight=2))
    setup.engine.say(b"{}")
    async with ask(setup) as answer:
        assert answer.status == 200
    async with ask(setup, items=["b", "c", "d"]) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, "too_many_outputs"), (
            "for two places"
        )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"items": []}, "items"),
        ({"items": ["b", ""]}, "items[1]"),
        ({"items": [5]}, "items[0]"),
        ({"items": ["b"] * 200}, "items"),
        ({"label_token_ids": None}, "label_token_ids"),
        ({"label_token_ids": []}, "label_token_ids"),
        ({"label_token_ids": list(range(21))}, "label_token_ids"),
        ({"query": 5}, "query"),
        ({"temperature": 0}, "temperature"),
        ({"return_pooled_hidden_states": True}, "return_pooled_hidden_states"),
    ],
)
async def test_a_wrong_field_is_refused_by_name(setup, fields, param):
    async with ask(setup, **fields) as answer:
        assert (answer.status, (await answer.json())["error"]["param"]) == (400, param)
    assert setup.engine.seen.empty()
