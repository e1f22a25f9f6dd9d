"""Measuring on a real scheduler: every mode answers, and what is served afterwards is untouched by it."""

import pytest
from sglang_processes import Link, ask_all, point

CONTEXTS = (100,) * 8


@pytest.fixture
async def link(ours):
    async with Link(ours.link_address) as link:
        await link.set("muxwise")
        await link.idle()
        yield link


@pytest.mark.parametrize("warm_s", [0.0, 0.1])
async def test_each_repeat_is_told_when_a_prefill_or_a_fused_batch_is_measured(link, warm_s):
    prefill = point("prefill", prefill_sms=116, prefill=((128, 300), (64, 0)), warm_s=warm_s)
    measured = await link.measure(prefill)
    assert measured.error is None
    assert len(measured.prefill_s) == 2
    assert min(measured.prefill_s) > 0.0
    assert measured.gpu_clock_mhz is None, "there is no GPU"

    fused = point(
        "fused", prefill_sms=132, decode_sms=132, prefill=((64, 100),), decode=CONTEXTS, warm_s=warm_s
    )
    measured = await link.measure(fused)
    assert measured.error is None
    assert len(measured.decode_s) == 2


async def test_nothing_is_told_when_a_shape_is_only_warmed_up(link):
    measured = await link.measure(point("prefill", prefill_sms=132, prefill=((64, 0),), repeats=0))
    assert (measured.error, measured.prefill_s) == (None, ())


async def test_decode_steps_are_told_when_they_run_alone_or_beside_a_prefill(link):
    alone = await link.measure(point("decode", decode_sms=32, decode=CONTEXTS, repeats=4))
    assert alone.error is None
    assert len(alone.decode_s) == 4
    colocated = await link.measure(
        point("colocated", prefill_sms=100, decode_sms=32, prefill=((256, 0),), decode=CONTEXTS)
    )
    assert colocated.error is None
    assert len(colocated.prefill_s) == 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"decode_sms": 33, "decode": CONTEXTS}, "no partition group has these SMs; there are 132,0"),
        ({"decode_sms": 32, "decode": (9_000,) * 80}, "the KV pool holds 16384"),
    ],
)
async def test_the_reason_is_told_when_a_point_cannot_be_measured(link, asked, says):
    measured = await link.measure(point("decode", **asked))
    assert says in (measured.error or "")


def test_each_prefill_stream_is_warm_before_anyone_is_served(ours):
    for number, sms in enumerate((132, 124, 116, 108, 100, 92, 84, 68, 52), 1):
        assert f"pdmuxd: start: warming up prefill {number}/9 ({sms} SMs)" in ours.log
    assert "may stop decode for a step" not in ours.log


def test_the_log_says_how_fused_batches_are_captured(ours):
    """A CPU captures nothing."""
    assert "pdmuxd: graphs of fused batches: disabled" in ours.log


async def test_greedy_tokens_are_stock_sglangs_when_points_were_measured_before(ours, link, prompts, stock):
    await link.measure(point("decode", decode_sms=132, decode=CONTEXTS))
    await link.measure(point("fused", prefill_sms=132, decode_sms=132, prefill=((64, 0),), decode=CONTEXTS))
    few = prompts.first(10).without_aborts()
    assert await ask_all(ours.base_url, few, speed=4.0) == stock.answers[:10]
