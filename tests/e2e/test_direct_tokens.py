"""`pdmuxd serve` whose tokens come straight from its engine's scheduler, on the emulated engine."""

import contextlib
import json
import os
import re
import signal
from types import SimpleNamespace

import httpx
import pytest
from daemon_process import Daemon, wait_until

WAYS = {"direct": {}, "front end": {"pdmuxd_no_such_field": None}}
"""A field that nobody knows sends a request through the engine's front end."""


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("direct"), settings=("engine.token_path=direct",))
    with contextlib.closing(SimpleNamespace(close=daemon.stop)):
        wait_until(lambda: "tokens come from the engine's scheduler" in daemon.log)
        yield daemon


def ask(daemon, path, **body):
    messages = [{"role": "user", "content": "Hello"}]
    prompt = {"prompt": "Hello"} if path == "/v1/completions" else {"messages": messages}
    answer = httpx.post(
        daemon.data_url + path,
        json={"model": daemon.model, "stream": True} | prompt | body,
        headers={"Authorization": f"Bearer {daemon.key}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    said = re.sub(r'"id":"[0-9a-f]+"', '"id":""', answer.text)
    return re.sub(r'"created":\d+', '"created":0', said)


def text(said):
    lines = [line.removeprefix("data: ") for line in said.split("\n\n")]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens": 30, "ignore_eos": True},
        {"max_tokens": 1},
        {"max_tokens": 2, "ignore_eos": True},
        {"max_tokens": 40, "stop": ["a ", "o"]},
        {"max_tokens": 9, "stream_options": {"include_usage": True}},
    ],
)
def test_a_stream_is_the_same_whichever_way_its_tokens_come(direct, path, body):
    said = {way: ask(direct, path, **body, **more) for way, more in WAYS.items()}
    assert text(said["direct"]) == text(said["front end"])
    assert said["direct"].split("\n\n")[-3:] == said["front end"].split("\n\n")[-3:]


def test_streams_go_on_when_the_engine_is_the_next_one(direct):
    before = ask(direct, "/v1/completions", max_tokens=20, ignore_eos=True)
    os.kill(direct.engine()["pid"], signal.SIGKILL)
    wait_until(lambda: direct.log.count("tokens come from the engine's scheduler") == 2)
    wait_until(lambda: httpx.get(f"{direct.data_url}/health").status_code == 200)
    assert text(ask(direct, "/v1/completions", max_tokens=20, ignore_eos=True)) == text(before)
