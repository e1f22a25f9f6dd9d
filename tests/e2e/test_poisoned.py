"""A request that ends every engine that gets it: two of them, and then it is refused; others are served."""

import threading
from pathlib import Path

import httpx

POISONED = Path(__file__).parents[1] / "support" / "poisoned"
SETTINGS = (
    "data.engine_wait_s=120",
    "engine.restart_backoff_initial_s=0.05",
    "engine.restart_backoff_max_s=0.1",
)
ANSWER_S = 150
LONG = 1000
"""Tokens: their answer takes longer than the poison."""


class Client:
    """One of a tenant of its own; its answers come in a thread."""

    def __init__(self, daemon, name):
        assert daemon.admin("POST", "/api/v1/tenants", json={"name": name}).status_code == 201
        made = daemon.admin("POST", f"/api/v1/tenants/{name}/keys", json={})
        self._daemon, self._key = daemon, made.json()["secret"]

    def ask(self, prompt, max_tokens=LONG):
        return httpx.post(
            f"{self._daemon.data_url}/v1/completions",
            headers={"Authorization": f"Bearer {self._key}"},
            json={
                "model": self._daemon.model,
                "prompt": prompt,
                "max_tokens": max_tokens,
                "ignore_eos": True,
            },
            timeout=ANSWER_S,
        )

    def begin(self, prompt):
        """Ask in a thread; what the returned function waits for is the answer."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.ask(prompt)))
        thread.start()

        def answer():
            thread.join(ANSWER_S)
            return answers[0]

        return answer


def test_a_poisoned_request_ends_two_engines_and_others_are_served(start, until):
    daemon = start(settings=SETTINGS, environ={"PYTHONPATH": str(POISONED)})
    mallory, alice, bob = (Client(daemon, name) for name in ("mallory", "alice", "bob"))

    def die(prompts):
        """The engine ends while it has the poison and these, each of a client; their answers."""
        restarts = daemon.engine()["restarts"]
        answers = [client.begin(prompt) for client, prompt in prompts]
        until(lambda: daemon.engine()["stats"] and daemon.engine()["stats"]["running"] >= len(prompts))
        assert mallory.ask("poison").status_code == 502
        until(lambda: daemon.engine()["restarts"] == restarts + 1)
        return [answer() for answer in answers]

    for answer in die([(alice, "one"), (bob, "two")]):
        # It may have been any of the three.
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_lost")
    for answer in die([(alice, "three"), (bob, "four")]):
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == LONG

    pid = daemon.engine()["pid"]
    refused = mallory.ask("poison")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "quarantined")
    assert mallory.ask("else", 2).status_code == alice.ask("one", 2).status_code == 200
    engine = daemon.engine()
    assert (engine["pid"], engine["restarts"]) == (pid, 2)
    (held,) = daemon.admin("GET", "/api/v1/engine/quarantine").json()
    assert (held["tenant"], len(held["request_ids"])) == ("mallory", 2)
    assert daemon.metric('pdmuxd_quarantined{tenant="mallory"}') == 1
    assert daemon.metric('pdmuxd_refusals_total{cause="quarantined",tenant="mallory"}') == 1
