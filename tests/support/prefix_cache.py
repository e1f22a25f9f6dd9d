"""What a tenant can learn from the prefix cache about prompts of others, asked of a whole daemon."""

from __future__ import annotations

import random
from typing import Any

import httpx
from daemon_process import Daemon

PROMPT_TOKENS = 200
PATIENCE_S = 120
GUESSES: tuple[dict[str, Any], ...] = (
    {},
    {"extra_key": "tenant/victim/"},
    {"extra_key": "victim"},
    {"cache_salt": "tenant/victim/"},
    {"extra_key": "", "cache_salt": ""},
    {"extra_key": None, "custom_params": {"pdmuxd_tenant": "victim"}},
    {"extra_key": "../victim/"},
    {"session_params": {"id": "victim"}},
)


class Tenants:
    """Makes tenants of a daemon and sends prompts in their names."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._keys: dict[str, str] = {}

    def make(self, name: str, **options: Any) -> None:
        made = self._daemon.admin("POST", "/api/v1/tenants", json={"name": name, **options})
        assert made.status_code == 201, made.text
        key = self._daemon.admin("POST", f"/api/v1/tenants/{name}/keys", json={})
        self._keys[name] = key.json()["secret"]

    def cached_tokens(self, name: str, prompt: list[int], **fields: Any) -> int:
        body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 2, "temperature": 0}, **fields}
        answer = httpx.post(
            f"{self._daemon.data_url}/generate",
            json=body,
            headers={"Authorization": f"Bearer {self._keys[name]}"},
            timeout=PATIENCE_S,
        )
        assert answer.status_code == 200, answer.text
        return int(answer.json()["meta_info"]["cached_tokens"])

    def remove(self) -> None:
        for name in self._keys:
            self._daemon.admin("DELETE", f"/api/v1/tenants/{name}")


def check_isolation(daemon: Daemon) -> None:
    """One tenant's prompts are found by itself and by its group, and by nobody else whatever they send."""
    tenants = Tenants(daemon)
    try:
        tenants.make("victim")
        tenants.make("spy")
        for name in ("friend", "pal"):
            tenants.make(name, cache_group="mates")
        enough = PROMPT_TOKENS // 2

        def prompt(seed: int) -> list[int]:
            return random.Random(seed).choices(range(10, 250), k=PROMPT_TOKENS)

        known = prompt(0)
        assert tenants.cached_tokens("victim", known) == 0
        assert tenants.cached_tokens("victim", known) > enough, (
            "what is sent twice is found, so this can fail"
        )
        for seed, guess in enumerate(GUESSES):
            # A prompt of its own for each guess: the spy finds what it has sent itself.
            secret = prompt(seed + 10)
            tenants.cached_tokens("victim", secret)
            assert tenants.cached_tokens("spy", secret, **guess) == 0, guess
        fresh = prompt(1)
        assert tenants.cached_tokens("victim", fresh) == 0
        assert tenants.cached_tokens("spy", fresh) == 0
        assert tenants.cached_tokens("spy", fresh, extra_key="mine") == 0, "a client divides its own cache"
        assert tenants.cached_tokens("spy", fresh, extra_key="mine") > enough

        assert tenants.cached_tokens("friend", fresh) == 0
        assert tenants.cached_tokens("pal", fresh) > enough, "who shares by an operator's word does share"
    finally:
        tenants.remove()
