"""A real SGLang behind the daemon: its policy changes under load, and what clients see that it refuses."""

import contextlib
import threading

import httpx
import pytest
from daemon_process import Daemon, SharedDaemon, wait_until
from sglang_processes import ANSWER_S, daemon_settings, environment

POOL_TOKENS = 4096
SLO = {"ttft_fixed_ms": 60_000, "ttft_per_1k_new_tokens_ms": 0, "tbt_ms": 10_000, "attainment_ratio": 0.9}


@pytest.fixture(scope="module")
def shared(python, model, tmp_path_factory):
    def begin():
        settings = {each.partition("=")[0]: each for each in daemon_settings(python, model)}
        settings["engine.sglang.extra_args"] += f" --max-total-tokens {POOL_TOKENS}"
        folder = tmp_path_factory.mktemp("a daemon")
        return Daemon(folder, settings=[*settings.values()], environ=environment())

    with contextlib.closing(SharedDaemon(begin)) as made:
        yield made


@pytest.fixture
def daemon(shared):
    return shared.get()


def completion(daemon, key, *, prompt_tokens, max_tokens=4):
    """Its prompt is of so many tokens."""
    body = {
        "model": daemon.model,
        "prompt": [1 + number % 200 for number in range(prompt_tokens)],
        "max_tokens": max_tokens,
        "ignore_eos": True,
    }
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{daemon.data_url}/v1/completions", json=body, headers=headers, timeout=ANSWER_S)


class Load:
    """Clients that ask one thing after another until they are told to stop."""

    def __init__(self, daemon, clients=3):
        self._daemon, self._is_over = daemon, threading.Event()
        self.statuses = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self):
        while not self._is_over.is_set():
            self.statuses.append(completion(self._daemon, self._daemon.key, prompt_tokens=300).status_code)

    def goes_on(self, requests=4):
        """So many more are answered."""
        wanted = len(self.statuses) + requests
        wait_until(lambda: len(self.statuses) >= wanted, within_s=ANSWER_S)


def policy(daemon):
    return daemon.admin("GET", "/api/v1/policy").json()


def reasons(daemon):
    """Of the newest decisions."""
    decisions = daemon.admin("GET", "/api/v1/decisions?limit=20").json()["decisions"]
    return {one["reason"] for one in decisions}


def is_running(daemon, spec):
    found = policy(daemon)
    return found["in_force"] and found["running"] == spec


def test_a_policy_set_under_load_decides_from_then_on_and_nothing_is_lost(daemon):
    before = policy(daemon)["running"]
    with Load(daemon) as load:
        load.goes_on()
        assert daemon.admin("PUT", "/api/v1/policy", json={"policy": "chunked:64"}).status_code == 200
        wait_until(lambda: is_running(daemon, "chunked:64"), within_s=ANSWER_S)
        wait_until(lambda: "token_budget" in reasons(daemon), within_s=ANSWER_S)
        load.goes_on()
        daemon.admin("POST", "/api/v1/policy/rollback", json={})
        wait_until(lambda: is_running(daemon, before), within_s=ANSWER_S)
        load.goes_on()
        wait_until(lambda: "token_budget" not in reasons(daemon), within_s=ANSWER_S)
    assert set(load.statuses) == {200}
    assert daemon.probe("/readyz").status_code == 200


@pytest.fixture
def impatient(daemon):
    """The key of a tenant whose requests may wait for a tenth of a second."""
    fields = {"name": "impatient", "slo": SLO, "max_wait_ms": 100}
    daemon.admin("POST", "/api/v1/tenants", json=fields)
    made = daemon.admin("POST", "/api/v1/tenants/impatient/keys", json={}).json()["secret"]
    yield made
    assert daemon.admin("DELETE", "/api/v1/tenants/impatient").status_code == 204


def check_refused(answer, code):
    assert answer.status_code == 503, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (code, "server_error"), error
    assert error["message"]
    assert int(answer.headers["Retry-After"]) >= 1


def test_a_client_is_told_when_its_request_has_waited_for_too_long(daemon, impatient):
    def answer():
        return completion(daemon, impatient, prompt_tokens=2500)

    refused = 'pdmuxd_engine_requests_total{outcome="refused",tenant="impatient"}'
    before = daemon.metric(refused)
    assert completion(daemon, impatient, prompt_tokens=20).status_code == 200
    # What the pool holds for it leaves no room for another long one.
    with daemon.stream(max_tokens=800, messages=[{"role": "user", "content": "long " * 400}]):
        check_refused(answer(), "max_wait")
    wait_until(daemon.is_idle, within_s=ANSWER_S)
    wait_until(lambda: daemon.metric(refused) == before + 1)


def test_a_client_is_told_at_once_when_its_request_could_only_be_late(daemon):
    slo = SLO | {"ttft_fixed_ms": 1}
    daemon.admin("POST", "/api/v1/tenants", json={"name": "strict", "slo": slo, "late_action": "refuse"})
    key = daemon.admin("POST", "/api/v1/tenants/strict/keys", json={}).json()["secret"]
    wait_until(lambda: daemon.admin("GET", "/api/v1/tenants/strict/slo").json()["in_force"])
    check_refused(completion(daemon, key, prompt_tokens=2000), "deadline_unreachable")
    assert daemon.admin("DELETE", "/api/v1/tenants/strict").status_code == 204
