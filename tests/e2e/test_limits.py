"""A whole daemon under limits and under many edits, and what a kill leaves of it."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from daemon_process import Daemon, wait_until

pytestmark = pytest.mark.slow
EDITS, WRITERS, TENANTS = 1000, 4, 10


def complete(daemon, max_tokens=8):
    body = {
        "model": daemon.model,
        "prompt": "one two three four",
        "max_tokens": max_tokens,
        "ignore_eos": True,
    }
    return daemon.data("POST", "/v1/completions", json=body)


def stored_tokens(database):
    """What a daemon that starts now would know."""
    with contextlib.closing(sqlite3.connect(database)) as opened:
        query = "SELECT coalesce(sum(input_tokens + output_tokens), 0) FROM token_use"
        return opened.execute(query).fetchone()[0]


def seconds_to_midnight():
    return 86400 - time.time() % 86400


def used(daemon, name):
    limits = daemon.admin("GET", "/api/v1/tenants/default/limits").json()["limits"]
    return next(one["used"] for one in limits if one["name"] == name)


def test_a_budget_is_not_refilled_when_the_daemon_is_killed(tmp_path):
    if (left_s := seconds_to_midnight()) < 90:
        time.sleep(left_s + 1)  # the budget would end, in UTC, while it is asserted
    with contextlib.ExitStack() as stack:
        daemon = Daemon(tmp_path)
        stack.callback(lambda: daemon.stop())
        path = "/api/v1/tenants/default/limits"
        daemon.admin("PATCH", path, json={"tokens_per_day": {"value": 60}})
        usage = [complete(daemon).json()["usage"] for _ in range(2)]
        really = sum(one["total_tokens"] - one["prompt_tokens_details"]["cached_tokens"] for one in usage)
        wait_until(lambda: used(daemon, "tokens_per_day") == really)
        database = tmp_path / ".pdmuxd" / "pdmuxd.db"
        wait_until(lambda: stored_tokens(database) == really)
        daemon.signal(signal.SIGKILL)
        daemon.wait()

        key = daemon.key
        daemon = Daemon(tmp_path, key=key)
        assert used(daemon, "tokens_per_day") == really
        answers = [complete(daemon, max_tokens=30)]
        while answers[-1].status_code == 200:
            answers.append(complete(daemon, max_tokens=30))
        # The engine's records come after the answers, and decide what is used.
        said = sum(answer.json()["usage"]["completion_tokens"] for answer in answers[:-1])
        wait_until(lambda: daemon.metric('pdmuxd_output_tokens_total{tenant="default"}') == said)
        wait_until(lambda: used(daemon, "tokens_per_day") == stored_tokens(database))
        latest_s = seconds_to_midnight()
        refused = complete(daemon, max_tokens=30)
        earliest_s = seconds_to_midnight()
        error = refused.json()["error"]
        assert (error["code"], error["limit"]["value"]) == ("tokens_per_day", 60)
        assert error["limit"]["used"] >= 60, "it is let in while less was used"
        assert error["limit"]["used"] == used(daemon, "tokens_per_day") >= really
        assert earliest_s - 1 <= error["limit"]["retry_after_s"] <= latest_s + 1
        assert int(refused.headers["Retry-After"]) == min(60, error["limit"]["retry_after_s"])


def test_a_budget_is_passed_by_one_request_at_most_when_a_burst_follows_short_answers(tmp_path):
    """60 requests of one token, then 600 at once of 500: what a tenant did before lowers nothing."""
    if (left_s := seconds_to_midnight()) < 180:
        time.sleep(left_s + 1)
    daemon = Daemon(tmp_path)
    try:
        daemon.admin("PATCH", "/api/v1/tenants/default", json={"max_in_flight": 1000})
        limits = {"tokens_per_day": {"value": 5000}}
        assert daemon.admin("PATCH", "/api/v1/tenants/default/limits", json=limits).status_code == 200
        for _ in range(60):
            assert complete(daemon, max_tokens=1).status_code == 200
        with ThreadPoolExecutor(100) as pool:
            answers = list(pool.map(lambda _: complete(daemon, max_tokens=500), range(600)))
        served = [answer.json()["usage"] for answer in answers if answer.status_code == 200]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(served) + len(refused) == 600
        assert {answer.status_code for answer in refused} == {429}
        assert {answer.json()["error"]["code"] for answer in refused} == {"tokens_per_day"}
        wait_until(lambda: daemon.is_idle())
        spent = used(daemon, "tokens_per_day")
        print(f"{len(served)} of 600 served, {spent} of 5000 tokens used")
        assert 5000 <= spent <= 5000 + 500 + served[0]["prompt_tokens"]
    finally:
        daemon.stop()


PRICES = {
    "currency": "EUR",
    "prices": [{"tenant": None, "model": None, "input": "500", "cached": "50", "output": "1000"}],
}
BUDGET_CENTS = 500


def test_a_budget_of_money_is_passed_by_one_request_at_most_and_kept_over_a_kill(tmp_path):
    """Three keys at once: bursts, batches, and streams that are cut off."""
    if (left_s := seconds_to_midnight()) < 180:
        time.sleep(left_s + 1)
    with contextlib.ExitStack() as stack:
        daemon = Daemon(tmp_path)
        stack.callback(lambda: daemon.stop())
        path = "/api/v1/tenants/default/limits"
        budget = {"spend_cents_per_day": {"value": BUDGET_CENTS}}
        early = daemon.admin("PATCH", path, json=budget)
        assert (early.status_code, early.json()["field"]) == (422, "spend_cents_per_day")
        assert daemon.admin("PUT", "/api/v1/prices", json=PRICES).status_code == 200
        assert daemon.admin("PATCH", path, json=budget).status_code == 200
        issued = [daemon.admin("POST", "/api/v1/tenants/default/keys", json={}).json() for _ in range(2)]
        keys = [daemon.key, *(one["secret"] for one in issued)]

        def ask(number):
            body = {"model": daemon.model, "prompt": "one two three", "ignore_eos": True, "max_tokens": 100}
            if number % 3 == 1:
                body |= {"prompt": ["one", "two", "three"], "max_tokens": 50}
            headers = {"Authorization": f"Bearer {keys[number % len(keys)]}"}
            with httpx.Client(base_url=daemon.data_url, headers=headers, timeout=60) as client:
                if number % 4 == 2:
                    with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
                        for _ in answer.iter_raw():
                            break  # and leave
                        return answer.status_code
                return client.post("/v1/completions", json=body).status_code

        with ThreadPoolExecutor(30) as pool:
            statuses = Counter(pool.map(ask, range(240)))
        wait_until(daemon.is_idle)
        while refills(daemon):
            pass
        wait_until(daemon.is_idle)
        spent = used(daemon, "spend_cents_per_day")
        cost = daemon.metric('pdmuxd_cost_total{tenant="default"}')
        print(f"{statuses}, {spent} of {BUDGET_CENTS} cents spent, {cost:.4f} EUR by the metric")
        assert statuses[200] > 10
        assert statuses[429] > 10
        one_request = 3 * 50 * 0.1 + 4 * 13 * 0.05
        assert BUDGET_CENTS <= spent <= BUDGET_CENTS + one_request
        assert spent - 1 < cost * 100 <= spent
        database = tmp_path / ".pdmuxd" / "pdmuxd.db"
        wait_until(lambda: stored_nanos(database) == round(cost * 1e9))
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        daemon = Daemon(tmp_path, key=daemon.key)
        assert used(daemon, "spend_cents_per_day") == spent
        refused = complete(daemon)
        assert refused.json()["error"]["code"] == "spend_cents_per_day"


def refills(daemon):
    """Serve one more where there is room; whether there was."""
    return complete(daemon, max_tokens=100).status_code == 200


def stored_nanos(database):
    with contextlib.closing(sqlite3.connect(database)) as opened:
        query = "SELECT coalesce(sum(cost_nanos), 0) FROM token_use WHERE key_id = ''"
        return opened.execute(query).fetchone()[0]


def test_no_edit_is_lost_when_there_are_a_thousand_a_minute(tmp_path):
    daemon = Daemon(tmp_path)
    try:
        for number in range(TENANTS):
            daemon.admin("POST", "/api/v1/tenants", json={"name": f"t{number}"})
        headers = {"Authorization": f"Bearer {daemon.token}"}

        def edit(writer):
            """Raise one tenant's target by a step, again and again, each time from what it read."""
            made = 0
            with httpx.Client(base_url=daemon.admin_url, headers=headers, timeout=60) as client:
                while made < EDITS // WRITERS:
                    path = f"/api/v1/tenants/t{(made + writer) % TENANTS}/slo"
                    before = client.get(path).json()
                    targets = {
                        name: before[name]
                        for name in ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "attainment_ratio")
                    }
                    answer = client.put(
                        path,
                        json={**targets, "tbt_ms": before["tbt_ms"] + 1},
                        headers={"If-Match": f'"{before["version"]}"', "X-Pdmuxd-Why": f"writer {writer}"},
                    )
                    if answer.status_code == 412:
                        continue  # another was first: read again
                    assert answer.status_code == 200, answer.text
                    made += 1

        begun_s = time.monotonic()
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(edit, range(WRITERS)))
        took_s = time.monotonic() - begun_s

        rises = [
            daemon.admin("GET", f"/api/v1/tenants/t{number}/slo").json()["tbt_ms"] - 50
            for number in range(TENANTS)
        ]
        assert sum(rises) == EDITS
        last = daemon.admin("GET", "/api/v1/tenants/t0/slo").json()
        versions = [one["version"] for one in daemon.admin("GET", "/api/v1/tenants").json()]
        wait_until(lambda: daemon.engine()["acked_version"] >= max(versions))
        assert daemon.admin("GET", "/api/v1/tenants/t0/slo").json()["in_force"], last
        print(f"{EDITS} edits in {took_s:.1f} s")
    finally:
        daemon.stop()


LARGE = "x" * 2**20
FLOODERS, FLOOD_S = 16, 3.0


def flood(daemon, key, until_s):
    """Bodies of 1 MiB that are refused; what came of each."""
    seen = Counter()
    body = json.dumps({"model": daemon.model, "prompt": "x", "max_tokens": -1, "user": LARGE})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with httpx.Client(base_url=daemon.data_url, headers=headers, timeout=60) as client:
        while time.monotonic() < until_s:
            try:
                seen[client.post("/v1/completions", content=body).status_code] += 1
            except httpx.TransportError:  # answered and closed while the body was still being sent
                seen["reset"] += 1
    return seen


def flooded(daemon, key):
    until_s, before_s = time.monotonic() + FLOOD_S, daemon.cpu_s()
    with ThreadPoolExecutor(FLOODERS) as pool:
        floods = [pool.submit(flood, daemon, key, until_s) for _ in range(FLOODERS)]
        came = sum((each.result() for each in floods), Counter())
    cpu_ms = 1000 * (daemon.cpu_s() - before_s) / max(1, sum(came.values()))
    print(f"of a flood of 1 MiB bodies came {dict(came)}; the daemon's CPU {cpu_ms:.1f} ms for each")
    return came


def test_requests_that_are_read_and_refused_are_bounded_by_the_requests_a_minute(tmp_path):
    """The host's work for a tenant who sends what is refused: 1 MiB each time, as fast as it is answered."""
    daemon = Daemon(tmp_path)
    try:
        daemon.admin("POST", "/api/v1/tenants", json={"name": "greedy"})
        key = daemon.admin("POST", "/api/v1/tenants/greedy/keys", json={}).json()["secret"]
        without = flooded(daemon, key)
        assert set(without) == {400}
        limit = {"requests_per_min": {"value": 20}}
        assert daemon.admin("PATCH", "/api/v1/tenants/greedy/limits", json=limit).status_code == 200
        came = flooded(daemon, key)
        assert came[400] <= 20
        assert set(came) <= {400, 429, "reset"}
        assert came[429]
    finally:
        daemon.stop()
