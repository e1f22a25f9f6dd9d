"""A stop that was asked for: every token of what is in flight arrives, and nothing has to be killed."""

import json
import signal

import httpx
import pytest
from daemon_process import Daemon
from sglang_processes import KEY, OurServer, daemon_settings, environment

TOKENS = 200
KILLED = "engine did not end in time and was killed"


@pytest.fixture
def engine(python, model, tmp_path):
    with OurServer(python, model, tmp_path) as server:
        yield server


def test_the_engine_ends_by_itself_after_its_streams_when_it_is_told_to(engine):
    body = {
        "input_ids": [5, 6, 7],
        "stream": True,
        "sampling_params": {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True},
    }
    headers = {"Authorization": f"Bearer {KEY}"}
    url = f"{engine.base_url}/generate"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        first = json.loads(next(lines).removeprefix("data: "))
        assert len(first["output_ids"]) < TOKENS, "it was over before it was told: nothing is tested"
        engine.process.send_signal(signal.SIGTERM)
        *_, last, done = lines
    assert len(json.loads(last.removeprefix("data: "))["output_ids"]) == TOKENS
    assert done == "data: [DONE]"
    assert engine.process.wait(120) == 0


def test_a_stopping_daemon_kills_no_engine_when_its_streams_have_ended(python, model, tmp_path):
    settings = [*daemon_settings(python, model), "drain_timeout_s=600"]
    daemon = Daemon(tmp_path, settings=settings, environ=environment())
    with daemon.stream(max_tokens=TOKENS) as lines:
        daemon.signal(signal.SIGTERM)
        received = [line for line in lines if line.startswith("data: ")]
    assert received[-1] == "data: [DONE]"
    finished = [json.loads(line.removeprefix("data: ")) for line in received[:-1]]
    reasons = [choice["finish_reason"] for chunk in finished for choice in chunk["choices"]]
    assert reasons[-1] == "length", daemon.log
    assert daemon.wait() == 0
    assert KILLED not in daemon.log
