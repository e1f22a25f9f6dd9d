"""`pdmuxd serve` whose tokens come straight from its engine's scheduler, on the emulated engine."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
from types import SimpleNamespace

import httpx
import pytest
from daemon_process import Daemon, SharedDaemon, is_running, wait_until

READY = "tokens come from the engine's scheduler"
WAYS = {"direct": {}, "front end": {"pdmuxd_no_such_field": None}}
"""A field that nobody knows sends a request through the engine's front end."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    def begin():
        return Daemon(tmp_path_factory.mktemp("direct"), settings=("engine.token_path=direct",))

    with contextlib.closing(SharedDaemon(begin)) as made:
        yield made


@pytest.fixture
def direct(shared):
    daemon = shared.get()
    wait_until(lambda: READY in daemon.log)
    return daemon


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


LONG = {"max_tokens": 1500, "ignore_eos": True}
"""Longer than an upgrade takes."""


@contextlib.contextmanager
def streaming(daemon, **body):
    """An answer of which some tokens have come from the scheduler; yields its lines."""
    before = daemon.metric("pdmuxd_direct_tokens_total")
    request = {"model": daemon.model, "prompt": "Hello", "stream": True} | LONG | body
    headers = {"Authorization": f"Bearer {daemon.key}"}
    with httpx.stream(
        "POST", f"{daemon.data_url}/v1/completions", json=request, headers=headers, timeout=60
    ) as answer:
        lines = answer.iter_lines()
        first = next(lines)
        wait_until(lambda: daemon.metric("pdmuxd_direct_tokens_total") > before)
        yield (line for line in itertools.chain((first,), lines) if line)


def joined(lines):
    return text("\n\n".join(lines))


def test_the_engine_ends_an_answer_whose_client_has_left(direct):
    with streaming(direct, max_tokens=100_000):
        assert not direct.is_idle()
    wait_until(direct.is_idle)
    wait_until(lambda: direct.metric("pdmuxd_direct_held_bytes") == 0)


def test_a_client_is_told_when_the_engine_is_killed_in_mid_answer(direct):
    ready = direct.log.count(READY)
    with streaming(direct, max_tokens=100_000) as lines:
        os.kill(direct.engine()["pid"], signal.SIGKILL)
        # Whether it also counts as a fallback depends on which of its two sockets is seen to close first.
        assert '"engine_lost"' in list(lines)[-1]
    wait_until(lambda: direct.log.count(READY) > ready)
    wait_until(lambda: httpx.get(f"{direct.data_url}/health").status_code == 200)
    with streaming(direct, max_tokens=50) as lines:
        assert list(lines)[-1] == "data: [DONE]"


def test_an_answer_is_whole_when_the_daemon_is_drained_or_upgraded_in_mid_answer(tmp_path):
    daemon = Daemon(tmp_path, settings=("engine.token_path=direct",))
    with contextlib.closing(SimpleNamespace(close=daemon.stop)):
        wait_until(lambda: READY in daemon.log)
        with streaming(daemon) as lines:
            whole = joined(lines)
        with streaming(daemon) as lines:
            command = [*daemon.command[:-2], "upgrade"]
            upgraded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
            assert upgraded.returncode == 0, upgraded.stderr
            # The new daemon has the engine's tokens now; this one's answer goes on through the front end.
            wait_until(lambda: daemon.log.count(READY) >= 2)
            assert joined(lines) == whole
        with streaming(daemon) as lines:
            holder = int((tmp_path / ".pdmuxd" / "lock").read_text().split()[0])
            os.kill(holder, signal.SIGTERM)
            assert joined(lines) == whole


def test_the_next_daemon_has_tokens_when_one_was_killed_in_mid_answer(tmp_path):
    daemon = Daemon(tmp_path, settings=("engine.token_path=direct",))
    wait_until(lambda: READY in daemon.log)
    engine = daemon.engine()["pid"]
    with streaming(daemon, max_tokens=100_000) as lines:
        daemon.process.kill()
        with pytest.raises(httpx.HTTPError):
            list(lines)
    daemon.wait()
    wait_until(lambda: not is_running(engine))
    following = Daemon(tmp_path, key=daemon.key, settings=("engine.token_path=direct",))
    with contextlib.closing(SimpleNamespace(close=following.stop)):
        wait_until(lambda: following.log.count(READY) >= 2)
        with streaming(following, max_tokens=50) as lines:
            assert list(lines)[-1] == "data: [DONE]"
        sockets = {path.name for path in (tmp_path / ".pdmuxd").rglob("*.tokens")}
        assert len(sockets) <= 1


def test_streams_go_on_when_the_engine_is_the_next_one(direct):
    before, ready = ask(direct, "/v1/completions", max_tokens=20, ignore_eos=True), direct.log.count(READY)
    os.kill(direct.engine()["pid"], signal.SIGKILL)
    wait_until(lambda: direct.log.count(READY) > ready)
    wait_until(lambda: httpx.get(f"{direct.data_url}/health").status_code == 200)
    assert text(ask(direct, "/v1/completions", max_tokens=20, ignore_eos=True)) == text(before)
