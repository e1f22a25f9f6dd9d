"""A request that ends every engine that gets it, beside two tenants whose requests do not."""

from __future__ import annotations

import html
import threading
from typing import Any

import httpx

SETTINGS = (
    "engine.restart_backoff_initial_s=0.05",
    "engine.restart_backoff_max_s=0.1",
)
ANSWER_S = 700
LONG = 1000
"""Tokens: their answer takes longer than the poison."""
Prompt = str | list[int]


class Client:
    """One of a tenant of its own; its answers come in a thread."""

    def __init__(self, daemon: Any, name: str) -> None:
        assert daemon.admin("POST", "/api/v1/tenants", json={"name": name}).status_code == 201
        made = daemon.admin("POST", f"/api/v1/tenants/{name}/keys", json={})
        self._daemon, self._key = daemon, made.json()["secret"]

    def ask(self, prompt: Prompt, max_tokens: int = LONG) -> httpx.Response:
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

    def begin(self, prompt: Prompt) -> Any:
        """Ask in a thread; what the returned function waits for is the answer."""
        answers: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answers.append(self.ask(prompt)))
        thread.start()

        def answer() -> httpx.Response:
            thread.join(ANSWER_S)
            return answers[0]

        return answer


def check_two_deaths(daemon: Any, until: Any, poison: Prompt, reason: str) -> None:
    """Two engines end with the poison, each for a `reason`, and no third one does."""
    mallory, alice, bob = (Client(daemon, name) for name in ("mallory", "alice", "bob"))

    def die(prompts: list[tuple[Client, str]]) -> list[httpx.Response]:
        """The engine ends while it has the poison and these, each of a client; their answers."""
        restarts = daemon.engine()["restarts"]
        answers = [client.begin(prompt) for client, prompt in prompts]
        until(lambda: (daemon.engine()["stats"] or {}).get("running", 0) >= len(prompts))
        assert mallory.ask(poison).status_code == 502
        until(lambda: daemon.engine()["restarts"] == restarts + 1)
        return [answer() for answer in answers]

    for answer in die([(alice, "one"), (bob, "two")]):
        # It may have been any of the three.
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_lost")
    until(lambda: daemon.engine()["state"] == "serving")
    for answer in die([(alice, "three"), (bob, "four")]):
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == LONG

    pid = daemon.engine()["pid"]
    refused = mallory.ask(poison)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "quarantined")
    assert mallory.ask("else", 2).status_code == alice.ask("one", 2).status_code == 200
    engine = daemon.engine()
    assert (engine["pid"], engine["restarts"]) == (pid, 2)
    (held,) = daemon.admin("GET", "/api/v1/engine/quarantine").json()
    assert (held["tenant"], len(held["request_ids"])) == ("mallory", 2)
    assert daemon.metric('pdmuxd_quarantined{tenant="mallory"}') == 1
    assert daemon.metric('pdmuxd_refusals_total{cause="quarantined",tenant="mallory"}') == 1
    _check_it_is_told(daemon, until, held, reason)


def _check_it_is_told(daemon: Any, until: Any, held: dict[str, Any], reason: str) -> None:
    """The alarm has the command that releases, the audit the daemon's entry, the evidence what was there."""
    active = daemon.admin("GET", "/api/v1/alarms").json()["active"]
    (alarm,) = (one for one in active if one["kind"] == "quarantined")
    assert alarm["tenant"] == "mallory"
    assert "pdmuxd engine quarantine --release mallory" in alarm["text"]
    with httpx.Client(base_url=daemon.admin_url, follow_redirects=True, timeout=60) as browser:
        browser.post("/ui/login", data={"token": daemon.token}, headers={"Origin": daemon.admin_url})
        page = " ".join(browser.get("/ui/alarms").text.split())
    assert alarm["text"] in html.unescape(page)
    assert len(held["engine_errors"]) == 2
    assert all(reason in error for error in held["engine_errors"]), held["engine_errors"]

    def entries() -> list[dict[str, Any]]:
        found = daemon.admin("GET", "/api/v1/audit", params={"tenant": "mallory"}).json()["entries"]
        return [one for one in found if one["action"] == "quarantine.hold"]

    until(entries)
    (entry,) = entries()
    assert entry["who_kind"] == "daemon"
    assert entry["after"]["request_ids"] == held["request_ids"]
    files = sorted((daemon.folder / ".pdmuxd").glob("engine-death-*.txt"))
    for path, rid in zip(files, held["request_ids"], strict=True):
        text = path.read_text()
        assert reason in text
        assert f"{rid} mallory" in text
        assert " alice\n" in text
