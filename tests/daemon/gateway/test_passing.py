"""What goes through the gateway, in both directions."""

import asyncio
import io
import logging

import pytest
import structlog

from pdmuxd.daemon.process.logging import configure_logging

EVENTS = (b'data: {"a": 1}\n\n', b'data: {"b": "\xc3\xa4"}\n\n', b"data: [DONE]\n\n")


async def test_bytes_pass_untouched_when_the_answer_is_whole(setup):
    odd = b'{ "spacing":   [1.0,2e3] , "x":"\\u00e4" }\n'
    setup.engine.script.put_nowait(odd)
    async with setup.post() as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert await response.read() == odd


async def test_each_event_arrives_before_the_next_is_made_when_streaming(setup):
    async with setup.post(stream=True) as response:
        assert response.content_type == "text/event-stream"
        for event in EVENTS:
            setup.engine.script.put_nowait(event)
            assert await asyncio.wait_for(response.content.readany(), 60) == event
        setup.engine.end()
        assert await response.read() == b""


async def test_an_engine_error_passes_when_the_engine_refuses(setup):
    setup.engine.status = 400
    setup.engine.script.put_nowait(b'{"error": {"message": "too long"}}')
    async with setup.post() as response:
        assert response.status == 400
        assert (await response.json())["error"]["message"] == "too long"


async def test_the_answer_carries_the_id_that_the_engine_got(setup):
    setup.engine.script.put_nowait(b"{}")
    async with setup.post(rid="mine") as response:
        seen = await setup.engine.seen.get()
        assert response.headers["x-request-id"] == seen["rid"] != "mine"
        assert len(seen["rid"]) == 32


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
async def test_reserved_fields_are_overridden_when_the_client_sends_them(setup, path):
    setup.engine.script.put_nowait(b"{}")
    params = {"pdmuxd_tenant": "bob", "pdmuxd_other": 1, "kept": [1, 2.5]}
    async with setup.post(
        path,
        text="x",
        messages=[{"role": "user", "content": "x"}],
        priority=9,
        extra_key="e",
        custom_labels={"a": "b"},
        custom_params=params,
        sampling_params={"max_new_tokens": 3, "custom_params": params},
    ):
        seen = await setup.engine.seen.get()
    assert not seen.keys() & {"priority", "custom_labels"}
    assert seen["extra_key"] == "tenant/alice/e"
    holder = seen["sampling_params"] if path == "/generate" else seen
    assert holder["custom_params"] == {"pdmuxd_tenant": "alice"}


async def test_token_ids_pass_when_they_are_the_prompt(setup):
    setup.engine.script.put_nowait(b"{}")
    async with setup.post(prompt=[1, 2, 128000]):
        assert (await setup.engine.seen.get())["prompt"] == [1, 2, 128000]


async def test_models_come_from_the_engine(setup):
    headers = {"Authorization": "Bearer pdm_alice"}
    async with setup.client.get(setup.url + "/v1/models", headers=headers) as response:
        assert (response.status, await response.read()) == (200, b'{"object":"list","data":[]}')


async def test_health_needs_no_key(setup):
    async with setup.client.get(setup.url + "/health") as response:
        assert response.status == 200


async def test_requests_are_counted_per_tenant_path_and_status(setup):
    setup.engine.script.put_nowait(b"{}")
    async with setup.post() as response:
        await response.read()
    async with setup.client.get(setup.url + "/nowhere/at/all") as response:
        assert response.status == 404
    text = setup.metrics.render().decode()
    assert 'pdmuxd_requests_total{path="/v1/completions",status="200",tenant="alice"} 1.0' in text
    assert 'pdmuxd_requests_total{path="other",status="404",tenant=""} 1.0' in text
    assert "pdmuxd_gateway_ttfb_seconds_count 1.0" in text


@pytest.fixture
def logged():
    """What the daemon's logging writes, whatever other tests have made of it."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = list(root.handlers), root.level
    configure_logging("info", "console", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


async def test_neither_prompt_nor_key_is_logged(setup, logged):
    setup.engine.script.put_nowait(b"{}")
    async with setup.post(prompt="sesame-prompt") as response:
        await response.read()
    async with setup.post(prompt={"sesame-prompt": 1}, key="pdm_alice") as response:
        assert response.status == 400
    async with setup.post(key="pdm_unknown-sesame") as response:
        assert response.status == 401
    async with asyncio.timeout(60):
        while logged.getvalue().count("/v1/completions") < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    assert "sesame" not in logged.getvalue()
    assert "pdm_" not in logged.getvalue()


async def test_json_numbers_keep_their_spelling(setup):
    setup.engine.script.put_nowait(b"{}")
    raw = b'{"model":"test-model","prompt":"x","logit_bias":{"5":1.50},"top_p":0.1234567890123456789}'
    headers = {"Authorization": "Bearer pdm_alice"}
    async with setup.client.post(setup.url + "/v1/completions", data=raw, headers=headers):
        seen = await setup.engine.seen.get()
    assert b'"top_p":0.1234567890123456789,' in setup.engine.raw
    assert seen["logit_bias"] == {"5": 1.5}


async def test_metadata_are_texts_as_clients_expect(setup):
    """SGLang's list among them; the same words in a text stay."""
    spans = b'"weight_versions":[{"version":"default","start":0,"end":5}]'
    text = spans.replace(b'"', b'\\"')
    kept = b'{"choices":[{"text":"{\\"a\\":1,' + text + b'}"}],"metadata":{"weight_version":"default"'
    setup.engine.say(kept + b"," + spans + b"}}")
    async with setup.post() as answer:
        assert await answer.read() == kept + b"}}"
