"""The Responses and the Messages API on SGLang: whose requests they are, and what their clients get."""

import contextlib

import anthropic
import httpx
import pytest
from conformity.run import all_cases, ask_all, differences, recorded
from daemon_process import Daemon, SharedDaemon, wait_until
from sglang_processes import STRUCTURED, daemon_settings, environment

TEXT = "Say something."
TOKENS = 9


@pytest.fixture(scope="module")
def shared(python, model, tmp_path_factory):
    def begin():
        folder = tmp_path_factory.mktemp("a daemon")
        settings = [*daemon_settings(python, model, *STRUCTURED), "data.trusted_peers=127.0.0.0/8"]
        return Daemon(folder, settings=settings, environ=environment())

    with contextlib.closing(SharedDaemon(begin)) as made:
        yield made


@pytest.fixture
def daemon(shared):
    return shared.get()


@pytest.fixture
def claude(daemon):
    with anthropic.Anthropic(base_url=daemon.data_url, api_key=daemon.key, max_retries=0) as client:
        yield client


@pytest.fixture
def counted(daemon):
    """Waits until the engine's record of so many more tokens of the tenant was counted."""

    def count():
        return daemon.metric('pdmuxd_output_tokens_total{tenant="default"}')

    daemon.count_what_ended()
    before = count()
    return lambda tokens: wait_until(lambda: count() - before == tokens)


def test_a_response_is_the_tenants(daemon, counted):
    answer = daemon.client.responses.create(model=daemon.model, input=TEXT, max_output_tokens=TOKENS)
    assert 0 < answer.usage.output_tokens <= TOKENS
    counted(answer.usage.output_tokens)


def test_a_streamed_response_is_the_tenants(daemon, counted):
    with daemon.client.responses.stream(model=daemon.model, input=TEXT, max_output_tokens=TOKENS) as stream:
        events = list(stream)
    assert "response.output_text.delta" in {event.type for event in events}
    counted(events[-1].response.usage.output_tokens)


def test_a_message_is_the_tenants(daemon, claude, counted):
    turns = [{"role": "user", "content": TEXT}]
    answer = claude.messages.create(model=daemon.model, max_tokens=TOKENS, messages=turns)
    assert 0 < answer.usage.output_tokens <= TOKENS
    counted(answer.usage.output_tokens)


def test_a_streamed_message_is_the_tenants(daemon, claude, counted):
    turns = [{"role": "user", "content": TEXT}]
    with claude.messages.stream(model=daemon.model, max_tokens=TOKENS, messages=turns) as stream:
        assert "".join(stream.text_stream)
        usage = stream.get_final_message().usage
    assert 0 < usage.output_tokens <= TOKENS
    counted(usage.output_tokens)


def test_a_prompt_is_found_in_its_own_tenants_cache_alone(daemon, claude):
    """By the engine's own records: SGLang tells clients only with --enable-cache-report."""
    turns = [{"role": "user", "content": "Count with me: " + "one two three four " * 60}]

    def reused(client, tenant):
        client.messages.create(model=daemon.model, max_tokens=2, messages=turns)
        ended = f'pdmuxd_engine_requests_total{{outcome="finished",tenant="{tenant}"}}'
        wait_until(lambda: daemon.metric(ended) > reused.ended.get(tenant, 0))
        reused.ended[tenant] = daemon.metric(ended)
        return daemon.metric(f'pdmuxd_reused_tokens_total{{tenant="{tenant}"}}')

    reused.ended = {
        "default": daemon.metric('pdmuxd_engine_requests_total{outcome="finished",tenant="default"}')
    }
    first = reused(claude, "default")
    assert reused(claude, "default") > first
    daemon.admin("POST", "/api/v1/tenants", json={"name": "stranger"})
    key = daemon.admin("POST", "/api/v1/tenants/stranger/keys", json={}).json()["secret"]
    wait_until(lambda: _knows(daemon, key))
    assert reused(claude.with_options(api_key=key), "stranger") == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
def test_a_routers_targets_reach_the_engine(daemon, path):
    turns = [{"role": "user", "content": TEXT}]
    asked = {"prompt": TEXT} if path == "/v1/completions" else {"messages": turns}
    headers = {
        "Authorization": f"Bearer {daemon.key}",
        "x-llm-d-slo-ttft-ms": "123456",
        "x-llm-d-slo-tpot-ms": "4321",
    }
    answer = httpx.post(
        daemon.data_url + path,
        json={"model": daemon.model, "max_tokens": 4, **asked},
        headers=headers,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    url = f"/api/v1/requests/{answer.headers['x-request-id']}"
    wait_until(lambda: daemon.admin("GET", url).json().get("ttft_target_ms") is not None)
    record = daemon.admin("GET", url).json()
    assert (record["ttft_target_ms"], record["tbt_target_ms"]) == (123456.0, 4321.0)


def test_every_answer_has_the_recorded_shape(daemon):
    """`python tests/lab conformance --python PYTHON --write FILE` makes another recording."""
    before = daemon.engine()["pid"]
    assert list(differences(ask_all(daemon, all_cases()), recorded())) == []
    assert daemon.engine()["pid"] == before


# Behind all those requests SGLang on a CPU is known to be slower than predicted.
@pytest.fixture(scope="module")
def strict(shared):
    """The key of a tenant whose first tokens are due before any can be made."""
    daemon = shared.get()
    slo = {"ttft_fixed_ms": 1, "ttft_per_1k_new_tokens_ms": 0, "tbt_ms": 10_000, "attainment_ratio": 0.9}
    daemon.admin("POST", "/api/v1/tenants", json={"name": "strict", "slo": slo, "late_action": "refuse"})
    key = daemon.admin("POST", "/api/v1/tenants/strict/keys", json={}).json()["secret"]
    wait_until(lambda: daemon.admin("GET", "/api/v1/tenants/strict/slo").json()["in_force"])
    return key


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_503_with_the_cause_when_the_engine_refuses_to_begin(daemon, strict, path, stream):
    text = "long " * 400
    asked = {"input": text} if path == "/v1/responses" else {"messages": [{"role": "user", "content": text}]}
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    answer = httpx.post(
        daemon.data_url + path,
        json={"model": daemon.model, "stream": stream, limit: 4, **asked},
        headers={"Authorization": f"Bearer {strict}"},
        timeout=120,
    )
    assert answer.status_code == 503, answer.text
    code = "not_begun" if path == "/v1/messages" else "deadline_unreachable"
    assert answer.json()["error"]["code"] == code
    assert int(answer.headers["Retry-After"]) >= 1


def _knows(daemon, key):
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(daemon.data_url + "/v1/models", headers=headers).status_code == 200
