"""What routers ask: the model, the node, its load; and what the client calls a request."""

from __future__ import annotations

import dataclasses

import pytest
from prometheus_client.parser import text_string_to_metric_families
from telemetry_feeds import HELLO, HandClock, heartbeat, step, telemetry

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.daemon.gateway import about
from pdmuxd.daemon.gateway.sglang_series import SglangSeries
from pdmuxd.daemon.serving.node_load import node_load

LOAD = about.NodeLoad(
    hello=HELLO,
    stats=heartbeat(running=3, prefilling=1, waiting=2, kv_used_tokens=50, kv_capacity_tokens=200),
    waiting=9,
    ttft_headroom_ratio=0.25,
    tbt_headroom_ratio=-0.5,
)
PATHS = (*about.SERVER_INFO, *about.MODEL_INFO, about.LOADS)


def authorized(setup, path, **headers):
    return setup.client.get(setup.url + path, headers={"Authorization": "Bearer pdm_alice"} | headers)


@pytest.mark.parametrize("path", PATHS)
async def test_the_node_tells_of_itself_with_a_key_only(setup, path):
    async with setup.client.get(setup.url + path) as answer:
        assert answer.status == 401
    async with authorized(setup, path) as answer:
        assert answer.status == 200
        assert await answer.json()


async def test_health_generate_is_health(setup):
    async with setup.client.get(setup.url + "/health_generate") as answer:
        assert answer.status == 200
    setup.gateway.lose_engine("down")
    async with setup.client.get(setup.url + "/health_generate") as answer:
        assert answer.status == 503


async def test_a_node_that_does_not_serve_offers_no_load_to_scrapers(setup):
    """Some gateways take a 200 of it for health, and no load for the best place (higress#4289)."""
    setup.gateway._tells_load, setup.gateway._load = True, lambda: LOAD
    setup.gateway.lose_engine("down")
    async with setup.client.get(setup.url + "/metrics") as answer:
        assert answer.status == 503
        assert "sglang:" not in await answer.text()


async def test_the_load_is_not_told_to_scrapers_unless_it_is_allowed(setup):
    async with setup.client.get(setup.url + "/metrics") as answer:
        assert answer.status == 404
    setup.gateway._tells_load, setup.gateway._load = True, lambda: LOAD
    async with setup.client.get(setup.url + "/metrics") as answer:
        assert answer.status == 200
        found = {
            sample.name: (sample.value, sample.labels)
            for family in text_string_to_metric_families(await answer.text())
            for sample in family.samples
        }
    latencies = ("sglang:time_to_first_token_seconds", "sglang:e2e_request_latency_seconds")
    gauges = {name: value for name, (value, _) in found.items() if not name.startswith(latencies)}
    assert gauges == {
        "sglang:num_running_reqs": 4,
        # 9 wait for a first token; one of them is in prefill.
        "sglang:num_queue_reqs": 8,
        "sglang:num_used_tokens": 50,
        "sglang:max_total_num_tokens": 200,
        "sglang:token_usage": 0.25,
        "sglang:cache_hit_rate": LOAD.cache_hit_rate,
        "sglang:gen_throughput": 0,
        "sglang:cache_config_info": 1,
        "pdmuxd:ttft_headroom_ratio": 0.25,
        "pdmuxd:tbt_headroom_ratio": -0.5,
    }
    assert all(labels["model_name"] == "llama-8b" for _, labels in found.values())


SGLANGS_PANELS = (
    "sglang:e2e_request_latency_seconds_bucket",
    "sglang:e2e_request_latency_seconds_sum",
    "sglang:time_to_first_token_seconds_bucket",
    "sglang:time_to_first_token_seconds_sum",
    "sglang:num_running_reqs",
    "sglang:gen_throughput",
    "sglang:cache_hit_rate",
    "sglang:num_queue_reqs",
)
"""What the panels of SGLang's dashboard ask for (0.5.23, examples/monitoring)."""


async def test_every_panel_of_sglangs_dashboard_has_its_series(setup):
    setup.gateway._tells_load, setup.gateway._load = True, lambda: LOAD
    setup.engine.say(b'{"choices":[{}]}')
    async with setup.post() as answer:
        assert answer.status == 200
    async with setup.client.get(setup.url + "/metrics") as answer:
        families = list(text_string_to_metric_families(await answer.text()))
    samples = [sample for family in families for sample in family.samples]
    assert {sample.name for sample in samples} >= set(SGLANGS_PANELS)
    for name in ("sglang:e2e_request_latency_seconds", "sglang:time_to_first_token_seconds"):
        buckets = [sample.value for sample in samples if sample.name == f"{name}_bucket"]
        assert buckets == sorted(buckets)
        assert buckets[-1] == 1


def test_tokens_a_second_are_of_the_time_between_two_looks():
    now_s = 100.0
    series = SglangSeries(lambda: now_s)
    assert series.tokens_per_s(heartbeat(output_tokens=100)) == 0
    now_s += 2.0
    assert series.tokens_per_s(heartbeat(output_tokens=150)) == 25
    now_s += 0.1
    assert series.tokens_per_s(heartbeat(output_tokens=160)) == 25
    assert series.tokens_per_s(heartbeat(output_tokens=0)) == 0, "another engine counts anew"


async def test_one_model_is_passed_and_an_unknown_one_is_not_found(setup):
    async with authorized(setup, "/v1/models/nobody") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "model_not_found"
    async with authorized(setup, "/v1/models/test-model") as answer:
        assert answer.status == 200
        assert (await answer.json())["id"] == "test-model"


@pytest.mark.parametrize("path", ["/v1/responses/resp_1", "/v1/messages/batches"])
async def test_what_the_engine_has_and_is_not_served_is_refused_by_name(setup, path):
    async with setup.client.post(setup.url + path, json={}) as answer:
        assert answer.status == 501
        error = (await answer.json())["error"]
    assert error["code"] == "not_supported"
    assert path in error["message"]


async def test_the_clients_own_id_is_returned(setup):
    setup.engine.say(b"{}")
    async with setup.post(headers={"X-Request-Id": "trace-7:a/b"}) as answer:
        assert answer.headers["x-request-id"] == "trace-7:a/b"
        own = answer.headers["x-pdmuxd-request-id"]
    assert (await setup.engine.seen.get())["rid"] == own != "trace-7:a/b"


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", 'a"b'])
async def test_an_id_that_is_none_is_replaced(setup, given):
    setup.engine.say(b"{}")
    async with setup.post(headers={"X-Request-Id": given}) as answer:
        assert answer.headers["x-request-id"] == (await setup.engine.seen.get())["rid"]
        assert "x-pdmuxd-request-id" not in answer.headers


async def test_a_refused_request_has_the_clients_id_too(setup):
    async with setup.post(key="pdm_wrong", headers={"X-Request-Id": "mine"}) as answer:
        assert answer.status == 401
        assert answer.headers["x-request-id"] == "mine"


def test_no_key_and_no_argument_of_the_engine_is_told():
    text = str([about.answer(path, LOAD) for path in PATHS]) + about.metrics_text(LOAD).decode()
    assert "key" not in text
    assert "tenant" not in text


def test_an_engine_that_does_not_serve_has_no_load():
    for path in PATHS:
        assert about.answer(path, about.no_load())
    assert b'sglang:num_queue_reqs{model_name=""} 0' in about.metrics_text(about.no_load())


def test_a_models_name_cannot_end_a_label():
    odd = dataclasses.replace(LOAD, hello=type(HELLO)(**{**_fields(HELLO), "model": 'a"} 1\nx{b="'}))
    names = {family.name for family in text_string_to_metric_families(about.metrics_text(odd).decode())}
    assert all(name.startswith(("sglang:", "pdmuxd:")) for name in names)


def test_headroom_is_what_the_most_urgent_has_left():
    clock = HandClock()
    fed = telemetry(clock, chat=0.04)
    fed.status = lambda: EngineStatus(state="serving", since_s=0.0, hello=HELLO, stats=heartbeat())
    fed.in_flight = lambda: {"chat": 1}
    assert node_load(fed).ttft_headroom_ratio == node_load(fed).tbt_headroom_ratio == 1.0

    fed.on_begin("r1", tenant="chat", path="/generate")
    fed.on_read("r1", is_streamed=True, body_bytes=0, read_s=0.0)
    clock.turn(0.4)
    fed.on_message(step(measured_decode_s=0.03, now_s=clock.now_s))
    load = node_load(fed)
    assert load.queued == load.waiting == 1
    assert load.ttft_headroom_ratio == pytest.approx(0.2, abs=0.01)  # 0.4 s of 0.5 s are gone
    assert load.tbt_headroom_ratio == pytest.approx(0.25)
    clock.turn(0.4)
    assert node_load(fed).ttft_headroom_ratio == pytest.approx(-0.6, abs=0.01)


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


async def test_models_are_told_in_anthropics_form_when_its_client_asks(setup):
    import anthropic  # takes a second: not in each process that collects the tests

    async with anthropic.AsyncAnthropic(base_url=setup.url, api_key="pdm_alice", max_retries=0) as client:
        (listed,) = (await client.models.list()).data
        one = await client.models.retrieve("test-model")
        assert listed == one
        assert (one.type, one.id, one.display_name) == ("model", "test-model", "test-model")
        assert one.created_at.year == 1970
        with pytest.raises(anthropic.NotFoundError) as caught:
            await client.models.retrieve("nobody")
        assert caught.value.body["type"] == "error"
        with pytest.raises(anthropic.AuthenticationError):
            await client.with_options(api_key="pdm_wrong").models.list()
