"""Two ranks on the CPU, under aborts and policy switches, with prefixes evicted all the time and a device
that is behind the host.

Ranks whose prefix caches differ form batches of different sizes and end. Ranks that do not launch the same
for a measurement wait for each other, and on GPUs so do ranks whose prefill and decode sum over one
communicator.
"""

import asyncio
import contextlib
import json
import os
from pathlib import Path

import httpx
import late_device
import logged_collectives
import pytest
import sglang_plugin
from answer_forms import ask_forms, check_forms
from lone_gateway import KEY as CLIENT_KEY
from lone_gateway import lone_gateway
from sglang_processes import KEY, Link, OurServer, addresses, ask_all, point, wrong_answers

from pdmuxd.daemon.tokens.counts import FallbackCause
from pdmuxd.engine.link import token_frames

POLICIES = ("muxwise", "auto", "chunked:256", "static:84,48")
SMALL_POOL = ("--max-total-tokens", "3000")
CONTEXTS = (100,) * 4
SIDE_BY_SIDE = {"prefill_sms": 100, "decode_sms": 32}
ON_ALL_SMS = {"prefill_sms": 132, "decode_sms": 132}
POINTS = [
    point("prefill", prefill_sms=116, prefill=((128, 300), (64, 0))),
    point("prefill", prefill_sms=132, prefill=((512, 0),), warm_s=0.2),
    point("decode", decode_sms=32, decode=CONTEXTS),
    point("colocated", **SIDE_BY_SIDE, prefill=((256, 0),), decode=CONTEXTS),
    point("fused", **ON_ALL_SMS, prefill=((64, 100),), decode=CONTEXTS, warm_s=0.2),
    point("colocated", **SIDE_BY_SIDE, prefill=((64, 0), (64, 0)), decode=CONTEXTS, repeats=4),
]


@pytest.fixture(scope="module")
def server(python, model, late_device_variables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two-ranks")
    variables = both(late_device_variables, told(folder))
    with OurServer(python, model, folder, tp_size=2, flags=SMALL_POOL, variables=variables) as server:
        yield server


async def test_each_repeat_is_told_when_two_ranks_measure(server):
    async with Link(server.link_address) as link:
        await link.set("muxwise")
        await link.idle()
        assert (link.hello.can_measure, link.hello.tensor_parallel.gpus) == (True, 2)
        for asked in POINTS:
            measured = await link.measure(asked)
            assert measured.error is None
            repeats = {"prefill": measured.prefill_s, "colocated": measured.prefill_s}
            assert len(repeats.get(asked.mode, measured.decode_s)) == asked.repeats
        refused = await link.measure(point("decode", decode_sms=33, decode=CONTEXTS))
        assert "no partition group has these SMs" in refused.error
        assert (await link.idle()).kv_used_tokens == 0


async def test_greedy_tokens_are_stock_sglangs_when_two_ranks_serve(server, prompts, stock):
    asked = prompts.first(60)
    async with Link(server.link_address) as link:
        await link.set("muxwise")
        for one in POINTS:
            assert (await link.measure(one)).error is None
        async with link.changing(POLICIES, every_s=1.0), asyncio.timeout(300):
            answers = await ask_all(server.base_url, asked)
            check_forms(await ask_forms(server.base_url, rounds=2))
        stats = await link.idle()
        assert stats.settings_version > len(POLICIES)
        assert stats.kv_used_tokens == 0
    assert wrong_answers(asked, answers, stock.answers[: len(answers)]) == {}
    assert "leak" not in server.log
    assert server.log.count(late_device.SAYS) > 2, "on two ranks"
    groups = {(stage, name) for stage in STAGES for name in GROUPS if says(stage, name) in server.log}
    assert groups == {
        ("measured layers", "pdmux_prefill_tp:0"),
        ("prefill layers", "pdmux_prefill_tp:0"),
        ("tried layers", "pdmux_prefill_tp:0"),
        ("the rest", "tp:0"),
    }


def test_no_port_can_be_reached_from_another_machine_when_two_ranks_serve(server):
    assert addresses(server.process.pid) == {"127.0.0.1"}


ANSWER_TOKENS = 300
BEGINNINGS = ("Hello", "Tell me about it. ", "äöü: ", "数字七")


async def whole_texts(url):
    """Of answers that are given together."""
    headers = {"Authorization": f"Bearer {CLIENT_KEY}"}
    body = {
        "model": "tiny",
        "stream": True,
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
        "ignore_eos": True,
    }
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=240) as client:
        asking = [client.post("/v1/completions", json=body | {"prompt": prompt}) for prompt in BEGINNINGS]
        answers = [answer.text.split("\n\n") for answer in await asyncio.gather(*asking)]
    events = [[event for event in answer if event.startswith("data: {")] for answer in answers]
    return [
        "".join(json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in answer)
        for answer in events
    ]


async def until(condition):
    async with asyncio.timeout(240):
        while not condition():  # noqa: ASYNC110 - the engine does it by itself
            await asyncio.sleep(0.01)


async def test_streams_are_whole_when_two_ranks_serve_and_the_daemon_is_replaced(server, monkeypatch):
    connected = []
    is_own_user = token_frames.is_own_user
    monkeypatch.setattr(token_frames, "is_own_user", lambda end: connected.append(end) or is_own_user(end))
    path = token_frames.frames_path(server.link_address)
    async with Link(server.link_address) as link, contextlib.AsyncExitStack() as stack:
        await link.set("muxwise")
        enter = stack.enter_async_context
        http, _ = await enter(lone_gateway(server.base_url, KEY, "tiny"))
        expected = await whole_texts(http)
        assert all(expected)

        url, first = await enter(lone_gateway(server.base_url, KEY, "tiny", tokens=path))
        await until(lambda: first.is_ready)
        assert await whole_texts(url) == expected
        assert first.counts.tokens > ANSWER_TOKENS
        assert (first.mismatches, first.counts.fallbacks.total()) == (0, 0)
        assert len(connected) == 1, "both ranks hand tokens over"

        tokens = first.counts.tokens
        asking = asyncio.create_task(whole_texts(url))
        await until(lambda: first.counts.tokens > tokens)
        next_url, second = await enter(lone_gateway(server.base_url, KEY, "tiny", tokens=path))
        first._lose()  # as when a daemon ends, whose answers go on for this test
        assert await asking == expected
        assert first.counts.fallbacks[FallbackCause.DISCONNECTED]

        await until(lambda: second.is_ready)
        assert await whole_texts(next_url) == expected
        assert second.counts.tokens > ANSWER_TOKENS
        assert (second.mismatches, second.counts.fallbacks.total()) == (0, 0)
        assert len(connected) == 2


STAGES, GROUPS = (
    ("measured layers", "prefill layers", "tried layers", "the rest"),
    ("pdmux_prefill_tp:0", "tp:0"),
)


def says(stage, group):
    return logged_collectives.SAYS.format(stage=stage, group=group)


def told(folder):
    """The environment of a server that says which communicator it sums over."""
    plugins, file = folder / "told-collectives", Path(logged_collectives.__file__)
    plugins.mkdir()
    return sglang_plugin.install(plugins, logged_collectives.NAME, file.stem, [file])


def both(one, other):
    """The environment of a server that loads two plugins."""
    separators = {"SGLANG_PLUGINS": ",", "PYTHONPATH": os.pathsep}
    return {name: separator.join((one[name], other[name])) for name, separator in separators.items()}
