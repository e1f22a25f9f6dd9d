"""A stranger's clients against `pdmuxd serve`."""

import json
import re

import openai
import pytest
import yaml
from daemon_process import wait_until
from prefix_cache import check_isolation

from pdmuxd.daemon.monitoring.files import rules

TEXT = "Say something."
MESSAGES = [{"role": "user", "content": "Say something."}]


def test_the_openai_client_gets_an_answer(daemon):
    answer = daemon.client.chat.completions.create(model=daemon.model, messages=MESSAGES, max_tokens=7)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 7
    assert len(answer._request_id) == 32


def test_the_openai_client_gets_usage_at_the_end_of_a_stream(daemon):
    stream = daemon.client.chat.completions.create(
        model=daemon.model,
        messages=MESSAGES,
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].usage.completion_tokens == 9
    assert chunks[-1].choices == []


@pytest.mark.parametrize("prompt", ["Once upon a time", [1, 2, 3, 4]])
def test_completions_take_text_and_token_ids(daemon, prompt):
    answer = daemon.client.completions.create(model=daemon.model, prompt=prompt, max_tokens=5)
    assert answer.usage.completion_tokens == 5


def test_generate_answers_as_sglang_does(daemon):
    body = {"text": "x", "sampling_params": {"max_new_tokens": 4}}
    answer = daemon.data("POST", "/generate", json=body).json()
    assert answer["meta_info"]["completion_tokens"] == 4


def test_models_are_listed(daemon):
    assert [model.id for model in daemon.client.models.list()] == [daemon.model]


@pytest.mark.parametrize(
    ("error", "model", "key"),
    [
        (openai.AuthenticationError, None, "pdm_wrong"),
        (openai.NotFoundError, "no-such-model", None),
    ],
)
def test_the_openai_client_recognises_refusals(daemon, error, model, key):
    client = daemon.client.with_options(api_key=key or daemon.key)
    with pytest.raises(error):
        client.chat.completions.create(model=model or daemon.model, messages=MESSAGES)


def test_a_disconnect_aborts_the_request_in_the_engine(daemon, until):
    aborted = 'pdmuxd_engine_requests_total{outcome="aborted",tenant="default"}'
    until(daemon.is_idle)
    before = daemon.metric(aborted)
    with daemon.stream():
        assert daemon.metric('pdmuxd_requests_in_flight{tenant="default"}') == 1
    until(lambda: daemon.metric(aborted) == before + 1)
    until(daemon.is_idle)


def test_an_slo_edit_is_in_force_in_the_same_engine_while_serving(daemon, until):
    path = "/api/v1/tenants/default/slo"
    current = daemon.admin("GET", path).json()
    wanted = {
        name: current[name] for name in ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "attainment_ratio")
    }
    engine = daemon.engine()["pid"]
    with daemon.stream() as lines:
        edit = daemon.admin("PUT", path, json=wanted | {"tbt_ms": current["tbt_ms"] + 7})
        assert edit.status_code == 200
        until(lambda: daemon.admin("GET", path).json()["in_force"])
        version = edit.json()["settings_version"]
        assert daemon.engine()["acked_version"] >= version
        assert next(line for line in lines if line.startswith("data: "))
    assert daemon.engine()["pid"] == engine
    assert daemon.metric('pdmuxd_settings_version{kind="acked"}') >= version


def test_a_new_key_works_at_once_and_a_revoked_one_no_longer(daemon):
    issued = daemon.admin("POST", "/api/v1/tenants/default/keys", json={"label": "second"}).json()
    client = daemon.client.with_options(api_key=issued["secret"])
    assert client.models.list()
    assert daemon.admin("DELETE", f"/api/v1/keys/{issued['key_id']}").is_success
    with pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_a_disabled_tenant_is_refused(daemon):
    assert daemon.admin("PATCH", "/api/v1/tenants/default", json={"enabled": False}).is_success
    try:
        with pytest.raises(openai.PermissionDeniedError):
            daemon.client.models.list()
    finally:
        assert daemon.admin("PATCH", "/api/v1/tenants/default", json={"enabled": True}).is_success


def test_what_alerts_are_made_of_is_scraped(daemon):
    alerts = [rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]]
    names = {name for rule in alerts for name in re.findall(r"(?<![:\w])pdmuxd_\w+", rule["expr"])}
    assert daemon.data("POST", "/v1/completions", json={"model": "no such"}).status_code >= 400  # a refusal
    with daemon.stream(max_tokens=20) as lines:
        assert list(lines)

    def missing():
        scraped = set(re.findall(r"^(pdmuxd_\w+)[{ ]", daemon.probe("/metrics").text, re.MULTILINE))
        # There is no GPU, and nobody has an incident.
        return names - scraped - {"pdmuxd_engine_gpu_clock_hertz", "pdmuxd_incident"}

    wait_until(lambda: not missing())
    causes = re.findall(
        r'^pdmuxd_gateway_aborts_total\{cause="(\w+)"\}', daemon.probe("/metrics").text, re.MULTILINE
    )
    assert {"engine_lost", "first_byte_timeout", "defect"} <= set(causes), "an increase is from what was seen"


def test_the_probes_and_metrics_need_no_token(daemon):
    assert daemon.probe("/healthz").json() == {"status": "ok"}
    assert daemon.probe("/readyz").json()["status"] == "ready"
    assert "pdmuxd_engine_up 1.0" in daemon.probe("/metrics").text
    assert daemon.probe("/api/v1/tenants").status_code == 401


def test_neither_keys_nor_prompts_are_in_the_log(daemon, until):
    answer = daemon.client.chat.completions.create(
        model=daemon.model, messages=[{"role": "user", "content": "sesame-prompt"}], max_tokens=2
    )
    until(lambda: answer._request_id in daemon.log)
    engine_log = (daemon.folder / ".pdmuxd" / "engine.log").read_text()
    for secret in (daemon.key, daemon.token, "sesame-prompt"):
        assert secret not in daemon.log
        assert secret not in engine_log
    assert "/v1/chat/completions" in daemon.log


def test_the_stream_is_made_of_events(daemon):
    with daemon.stream(max_tokens=3) as lines:
        events = [line for line in lines if line]
    assert events[-1] == "data: [DONE]"
    assert all(json.loads(event.removeprefix("data: ")) for event in events[:-1])


def test_no_tenant_finds_anothers_prompt_in_the_prefix_cache(daemon):
    check_isolation(daemon)


@pytest.fixture
def claude(daemon):
    import anthropic  # takes a second: not in each process that collects the tests

    with anthropic.Anthropic(base_url=daemon.data_url, api_key=daemon.key, max_retries=0) as client:
        yield client


@pytest.fixture
def ended(daemon):
    """Waits until the engine's record of one more request was counted; yields the tokens that it had."""

    def count():
        return daemon.metric('pdmuxd_output_tokens_total{tenant="default"}')

    daemon.count_what_ended()
    before = count()
    return lambda tokens: wait_until(lambda: count() - before == tokens)


def test_a_response_is_whole(daemon, ended):
    answer = daemon.client.responses.create(model=daemon.model, input=TEXT, max_output_tokens=7)
    assert answer.output_text
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.usage.output_tokens == 7
    assert answer.usage.total_tokens == answer.usage.input_tokens + 7
    assert not answer.store
    ended(7)


def test_a_response_is_streamed(daemon, ended):
    turns = [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}]
    with daemon.client.responses.stream(model=daemon.model, input=turns, max_output_tokens=9) as stream:
        events = list(stream)
    assert events[-1].type == "response.incomplete"
    final = events[-1].response
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds.count("response.output_text.delta") == 9
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert final.output_text == text
    assert final.usage.output_tokens == 9
    ended(9)


def test_a_message_is_whole(daemon, claude, ended):
    answer = claude.messages.create(
        model=daemon.model,
        max_tokens=7,
        system="Be brief.",
        messages=[{"role": "user", "content": [{"type": "text", "text": TEXT}]}],
    )
    assert answer.content[0].text
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 7)
    ended(7)


def test_a_message_is_streamed(daemon, claude, ended):
    turns = [{"role": "user", "content": TEXT}]
    with claude.messages.stream(model=daemon.model, max_tokens=9, messages=turns) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) == 9
    assert final.content[0].text == "".join(pieces)
    assert (final.usage.output_tokens, final.stop_reason) == (9, "max_tokens")
    ended(9)
