"""Two daemons that share a control plane on PostgreSQL: what one changes holds on both."""

import contextlib
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from daemon_process import PATIENCE_S, Daemon, wait_until
from postgres_server import PASSWORD, PostgresServer, find_programs

PROGRAMS = find_programs()
pytestmark = pytest.mark.skipif(PROGRAMS is None, reason="needs PostgreSQL: apt-get install postgresql")


@pytest.fixture
def server():
    with contextlib.closing(PostgresServer(PROGRAMS)) as made:
        yield made


@pytest.fixture
def nodes(tmp_path, server):
    with contextlib.ExitStack() as stack:
        environ = {"PDMUXD_DATABASE_URL": server.new_database()}
        made = []
        for name in ("one", "other"):
            folder = tmp_path / name
            folder.mkdir()
            made.append(Daemon(folder, environ=environ))
            stack.callback(made[-1].stop)
        yield made


def ask(node, key):
    body = {"model": node.model, "prompt": "x", "max_tokens": 2}
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{node.data_url}/v1/completions"
    return httpx.post(url, json=body, headers=headers, timeout=PATIENCE_S).status_code


def slo_in_force(node, tenant):
    found = node.admin("GET", f"/api/v1/tenants/{tenant}/slo").json()
    return found["tbt_ms"] if found["in_force"] else None


def test_two_nodes_share_tenants_and_each_serves_by_itself(nodes):
    one, other = nodes
    assert other.key is None  # the tenant was there already
    assert ask(one, one.key) == ask(other, one.key) == 200

    one.admin("POST", "/api/v1/tenants", json={"name": "chat"})
    chat = one.admin("POST", "/api/v1/tenants/chat/keys", json={}).json()
    wait_until(lambda: ask(other, chat["secret"]) == 200)
    other.admin(
        "PUT",
        "/api/v1/tenants/chat/slo",
        json={"ttft_fixed_ms": 500, "ttft_per_1k_new_tokens_ms": 500, "tbt_ms": 30, "attainment_ratio": 0.99},
    )
    wait_until(lambda: slo_in_force(one, "chat") == 30.0)
    wait_until(lambda: one.probe("/readyz").status_code == other.probe("/readyz").status_code == 200)

    one.signal(signal.SIGKILL)
    one.wait()
    wait_until(lambda: ask(other, chat["secret"]) == 200)
    revoked = other.admin("DELETE", f"/api/v1/keys/{chat['key_id']}")
    assert revoked.status_code == 200, revoked.text
    wait_until(lambda: ask(other, chat["secret"]) == 401)
    for node in nodes:
        assert PASSWORD not in node.log + node.output
        assert "***" in node.output


def requests_judged(node):
    found = node.admin("GET", "/api/v1/attainment?tenant=chat").json()["tenants"][0]
    return found["ttft"][-1]["judged"]


def tokens_used(node):
    limits = node.admin("GET", "/api/v1/tenants/chat/limits").json()["limits"]
    return next(one["used"] for one in limits if one["name"] == "tokens_per_day")


@pytest.mark.slow
def test_attainment_and_budgets_count_what_both_nodes_served(nodes):
    one, other = nodes
    one.admin("POST", "/api/v1/tenants", json={"name": "chat"})
    key = one.admin("POST", "/api/v1/tenants/chat/keys", json={}).json()["secret"]
    limits = {"tokens_per_day": {"value": 10**6}}
    assert one.admin("PATCH", "/api/v1/tenants/chat/limits", json=limits).status_code == 200
    wait_until(lambda: ask(other, key) == 200)
    assert [ask(node, key) for node in (one, one, other)] == [200, 200, 200]

    def stored():
        # What is not stored yet is stored when usage is asked for.
        return [node.admin("GET", "/api/v1/usage?tenant=chat").status_code for node in nodes]

    assert stored() == [200, 200]
    wait_until(lambda: stored() and requests_judged(one) == requests_judged(other) == 4, within_s=60)
    wait_until(lambda: tokens_used(one) == tokens_used(other) > 0, within_s=60)


LIMIT_TOKENS, LIMIT_CENTS, MOST = 5000, 450, 400
CENT_A_TOKEN = {"tenant": None, "model": None, "input": "1000", "cached": "1000", "output": "1000"}
"""In euros for a million: ten tokens are a cent."""


def attack(node, keys, seed):
    """Short answers first, then a burst of single answers, batches and cut streams; what came of each."""
    chance = random.Random(seed)

    def ask_for(kind, max_tokens):
        body = {"model": node.model, "prompt": "one two", "max_tokens": max_tokens, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {chance.choice(keys)}"}
        with httpx.Client(base_url=node.data_url, headers=headers, timeout=PATIENCE_S) as client:
            if kind == "cut":
                with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
                    next(answer.iter_raw(), None)
                    return answer.status_code
            if kind == "batch":
                body |= {"prompt": ["one two"] * 4, "max_tokens": max_tokens // 4}
            return client.post("/v1/completions", json=body).status_code

    kinds = [chance.choice(["one", "batch", "cut"]) for _ in range(150)]
    statuses = [ask_for("one", 1) for _ in range(20)]
    with ThreadPoolExecutor(30) as pool:
        return statuses + list(pool.map(lambda kind: ask_for(kind, MOST), kinds))


@pytest.mark.slow
def test_a_budget_is_passed_by_one_request_a_node_when_both_are_attacked_at_once(nodes):
    one, other = nodes
    one.admin("POST", "/api/v1/tenants", json={"name": "chat", "max_in_flight": 1000})
    keys = [one.admin("POST", "/api/v1/tenants/chat/keys", json={}).json()["secret"] for _ in range(3)]
    prices = {"currency": "EUR", "prices": [CENT_A_TOKEN]}
    assert one.admin("PUT", "/api/v1/prices", json=prices).status_code == 200
    limits = {
        "tokens_per_day": {"value": LIMIT_TOKENS},
        "spend_cents_per_month": {"value": LIMIT_CENTS},
    }
    assert one.admin("PATCH", "/api/v1/tenants/chat/limits", json=limits).status_code == 200
    wait_until(lambda: ask(other, keys[-1]) == 200)
    wait_until(lambda: used_by(other, "spend_cents_per_month") is not None)
    with ThreadPoolExecutor(2) as pool:
        attacks = [pool.submit(attack, node, keys, seed) for seed, node in enumerate(nodes)]
        came = Counter(status for attacked in attacks for status in attacked.result())
    for node in nodes:
        wait_until(node.is_idle)
    cents = sum(node.metric('pdmuxd_cost_total{tenant="chat"}') * 100 for node in nodes)
    wait_until(lambda: used_by(one, "tokens_per_day") == used_by(other, "tokens_per_day"), within_s=60)
    tokens = used_by(one, "tokens_per_day")
    print(f"{dict(came)}; {tokens} of {LIMIT_TOKENS} tokens, {cents:.1f} of {LIMIT_CENTS} cents")
    assert came[200] > 10
    assert came[429] > 10
    prompt = 4 * 8  # of four prompts, bytes
    assert LIMIT_CENTS / 3 < cents <= LIMIT_CENTS + 2 * (MOST + prompt) / 10
    assert tokens <= LIMIT_TOKENS + 2 * (MOST + prompt)


def used_by(node, name):
    limits = node.admin("GET", "/api/v1/tenants/chat/limits").json()["limits"]
    return next((one["used"] for one in limits if one["name"] == name), None)


def test_a_node_says_so_serves_on_and_stops_while_its_database_hangs(tmp_path, server):
    """What is asked of the admin plane ends, alarms are raised, and SIGTERM ends the daemon."""
    node = Daemon(tmp_path, environ={"PDMUXD_DATABASE_URL": server.new_database()})
    try:
        server.freeze()
        began_s = time.monotonic()
        with ThreadPoolExecutor(45) as pool:
            writes = [
                pool.submit(node.admin, "POST", "/api/v1/tenants", json={"name": f"t{number}"})
                for number in range(45)
            ]
            assert ask(node, node.key) == 200
            wait_until(lambda: "database_unwritable" in node.admin("GET", "/api/v1/alarms").text)
            raised_s = time.monotonic() - began_s
            assert {write.result().status_code for write in writes} == {503}
        answered_s = time.monotonic() - began_s
        began_s = time.monotonic()
        assert node.stop() == 0
        stopped_s = time.monotonic() - began_s
    finally:
        server.thaw()
        node.stop()
    print(f"raised {raised_s:.1f} s, 45 writes refused {answered_s:.1f} s, stopped {stopped_s:.1f} s")
    assert raised_s < 10
    assert answered_s < 30
    assert stopped_s < 30
