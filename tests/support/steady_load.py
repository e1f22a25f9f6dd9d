"""Users who ask one thing after the other, in threads of their own, until they are told to stop."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import httpx


@contextlib.contextmanager
def steady_load(
    data_url: str, key: str, model: str, *, users: int = 16, prompt_words: int = 900, tokens: int = 200
) -> Iterator[None]:
    """Prompts differ, so that nothing is found in the prefix cache but what they begin with."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_user, args=(stop, data_url, key, model, number, prompt_words, tokens))
        for number in range(users)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _user(
    stop: threading.Event, data_url: str, key: str, model: str, number: int, words: int, tokens: int
) -> None:
    chance = random.Random(number)
    with httpx.Client(base_url=data_url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        while not stop.is_set():
            length = chance.randint(words // 4, words * 2)
            prompt = "You are a helpful assistant. " * 8 + f"{number}: " + f"tell{chance.random()} " * length
            body = {
                "model": model,
                "prompt": prompt,
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": True,
            }
            with (
                contextlib.suppress(httpx.HTTPError),
                http.stream("POST", "/v1/completions", json=body) as answer,
            ):
                for _ in answer.iter_raw():
                    if stop.is_set():
                        break
            stop.wait(chance.expovariate(2.0))
