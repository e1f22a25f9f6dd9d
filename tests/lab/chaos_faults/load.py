"""A seeded open-loop load, and what became of each request."""

from __future__ import annotations

import asyncio
import collections
import json
import random
import time

import httpx

DEADLINE_S = 90.0
"""A request that has had no end by then hangs."""


class Load:
    """Poisson arrivals of two kinds, half of them streams. `outcomes` counts, `violations` tells."""

    def __init__(self, site, *, rate_per_s, seed, deadline_s=DEADLINE_S):
        self.outcomes = collections.Counter()
        self.violations = []
        self._site = site
        self._rate = rate_per_s
        self._deadline_s = deadline_s
        self._rng = random.Random(seed)
        self._open = set()

    async def run(self):
        """Until cancelled; then wait for `drain`."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(timeout=self._deadline_s, limits=limits, trust_env=False)
        while True:
            await asyncio.sleep(self._rng.expovariate(self._rate))
            task = asyncio.create_task(self._one(self._body()))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def drain(self):
        """Wait for what is in flight."""
        if self._open:
            await asyncio.wait(self._open)
        await self._http.aclose()

    def _body(self):
        rng = self._rng
        is_long = rng.random() < 0.15
        words = int(min(6000, rng.lognormvariate(7.5 if is_long else 5.0, 0.8)))
        return {
            "model": self._site.model,
            "prompt": f"{rng.randrange(50)} " * words,
            "max_tokens": int(min(400, 1 + rng.lognormvariate(3.5 if is_long else 4.5, 0.7))),
            "ignore_eos": True,
            "stream": rng.random() < 0.5,
        }

    async def _one(self, body):
        began_s = time.monotonic()
        headers = {"Authorization": f"Bearer {self._site.key}"}
        try:
            async with asyncio.timeout(self._deadline_s):
                async with self._http.stream(
                    "POST", f"{self._site.data_url}/v1/completions", headers=headers, json=body
                ) as answer:
                    text = (await answer.aread()).decode(errors="replace")
            outcome = judge(answer.status_code, text, body)
        except TimeoutError:
            outcome = "hangs"
        except httpx.ReadTimeout:
            outcome = "hangs"
        except httpx.HTTPError as error:
            # Nobody can answer whose process was killed; whatever else breaks a connection is a defect.
            killed = self._site.was_down_between(began_s, time.monotonic())
            outcome = "daemon killed" if killed else f"connection lost: {error!r}"
        self.outcomes[outcome.partition(":")[0]] += 1
        if outcome.partition(":")[0] in ("hangs", "connection lost", "truncated", "unclear"):
            self.violations.append(f"{time.strftime('%H:%M:%S')} {outcome}")


def judge(status, text, body):
    """`complete`, `error CODE` for one that says what went wrong, else what is wrong with the answer."""
    if status != 200:
        try:
            return f"error {status} {json.loads(text)['error']['code']}"
        except (ValueError, KeyError, TypeError):
            return f"unclear: {status} {text[:200]}"
    if not body["stream"]:
        try:
            tokens = json.loads(text)["usage"]["completion_tokens"]
        except (ValueError, KeyError):
            return f"unclear: {text[:200]}"
        return (
            "complete"
            if tokens == body["max_tokens"]
            else f"truncated: {tokens} of {body['max_tokens']} tokens"
        )
    events = [line for line in text.splitlines() if line.startswith("data: ")]
    if events and events[-1] == "data: [DONE]":
        return "complete"
    try:
        return f"error in stream {json.loads(events[-1][6:])['error']['code']}"
    except (IndexError, ValueError, KeyError, TypeError):
        return f"truncated: {text[-200:]!r}"
