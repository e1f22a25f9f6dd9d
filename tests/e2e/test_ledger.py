"""The ledger is what clients saw, to the request: batches, and a SIGKILL in the middle of load, included."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import httpx

KEPT_AFTER_S = 3.0
"""Stored each second, after a record that takes milliseconds; a busy machine takes twice that."""
CLIENTS = 6
UNANSWERED = 12 + 9
"""Tokens that the request which a client had under way may have used without an answer: a batch's, with what
prompts of that second had."""


class Client(threading.Thread):
    """Asks again and again, in turn for one answer, for a batch of three, and for a stream."""

    def __init__(self, daemon, over):
        super().__init__()
        self._daemon, self._over = daemon, over
        self.seen = {}
        """By request id: tokens that came, and when the answer was there."""

    def run(self):
        url, headers = (
            f"{self._daemon.data_url}/v1/completions",
            {"Authorization": f"Bearer {self._daemon.key}"},
        )
        with httpx.Client(timeout=30, headers=headers) as http:
            for turn in itertools.count():
                prompt = ["a", "b", "c"] if turn % 3 == 1 else "x"
                body = {"model": self._daemon.model, "prompt": prompt, "max_tokens": 4, "ignore_eos": True}
                try:
                    answer = http.post(url, json=body | {"stream": turn % 3 == 2})
                except httpx.HTTPError:
                    return  # the daemon was killed
                if self._over.is_set():
                    return
                tokens = 4 if turn % 3 == 2 else answer.json()["usage"]["completion_tokens"]
                self.seen[answer.headers["x-request-id"]] = tokens, time.monotonic()


def seen_of(clients):
    return [found for client in clients for found in client.seen.items()]


def budget_used(daemon):
    limits = daemon.admin("GET", "/api/v1/tenants/default/limits").json()["limits"]
    return next(one["used"] for one in limits if one["name"] == "tokens_per_day")


def all_entries(daemon):
    found, after = {}, 0
    while after is not None:
        page = daemon.admin("GET", f"/api/v1/ledger?limit=500&after={after}").json()
        for entry in page["entries"]:
            assert entry["request_id"] not in found, "a request has one row"
            found[entry["request_id"]] = entry
        after = page["next_after"]
    return found


def require_sums(daemon):
    """Usage is the sum of the ledger."""
    entries = all_entries(daemon)
    (line,) = daemon.admin("GET", "/api/v1/usage").json()["lines"]
    assert line["requests"] == len(entries)
    for column in ("prefill_tokens", "cached_tokens", "output_tokens", "good"):
        assert line[column] == sum(entry[column] for entry in entries.values()), column
    return entries


def test_the_ledger_is_what_clients_saw_and_usage_is_its_sum_after_a_sigkill(start, until):
    daemon = start()
    budget = {"tokens_per_day": {"value": 10**9}}
    assert daemon.admin("PATCH", "/api/v1/tenants/default/limits", json=budget).status_code == 200
    over = threading.Event()
    clients = [Client(daemon, over) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(KEPT_AFTER_S + 3)
    daemon.signal(signal.SIGKILL)
    killed_s = time.monotonic()
    daemon.wait()
    over.set()
    for client in clients:
        client.join()
    seen = dict(seen_of(clients))
    due = {rid for rid, (_, at_s) in seen.items() if at_s < killed_s - KEPT_AFTER_S}

    daemon = start(key=daemon.key)
    entries = require_sums(daemon)
    late = sum(tokens for _, (tokens, at_s) in seen_of(clients) if at_s >= killed_s - KEPT_AFTER_S)
    stored = sum(entry["output_tokens"] for entry in entries.values())
    budget = budget_used(daemon) - sum(entry["prefill_tokens"] for entry in entries.values())
    print(f"output tokens: {stored} in the ledger, {budget} in the budget, {late} of the last seconds")
    assert stored <= budget <= stored + late + UNANSWERED * CLIENTS
    missing = due - entries.keys()
    print(
        f"{len(seen)} answers, {len(entries)} in the ledger, {len(due)} due, {len(missing)} of these missing"
    )
    assert len(due) > 30
    assert not missing
    for rid, (tokens, _) in seen.items():
        if rid in entries:
            assert entries[rid]["output_tokens"] == tokens
            assert entries[rid]["outcome"] == "finished"

    # And as good after the start as before it; a client that leaves is an entry, too.
    with daemon.stream(max_tokens=2000) as lines:
        next(lines)
    body = {"model": daemon.model, "prompt": ["a", "b"], "max_tokens": 3, "ignore_eos": True}
    assert daemon.data("POST", "/v1/completions", json=body).status_code == 200
    until(lambda: len(all_entries(daemon)) == len(entries) + 2)
    now = require_sums(daemon)
    left, batch = (entry for rid, entry in now.items() if rid not in entries)
    assert left["outcome"] == "aborted"
    assert batch["output_tokens"] == 6
    assert left["key_id"] == batch["key_id"] != ""
    text = daemon.admin("GET", "/api/v1/ledger?format=csv").text
    assert len(text.splitlines()) == len(now) + 1
