"""Measuring the emulated device gives what its serving takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engines import PROFILE, engine, request, run_until_idle

from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.emulator.measuring import Noise, measure
from pdmuxd.engine.link.measuring import Measure

TABLE = engine().table


def asked(mode: str = "colocated", **changes: object) -> Measure:
    fields: dict[str, object] = {
        "point_id": 1,
        "mode": mode,
        "prefill_sms": 96,
        "decode_sms": 36,
        "prefill": ((8192, 0),),
        "decode": (4000,) * 16,
        "repeats": 2,
    }
    return Measure(**{**fields, **changes})


def test_decode_beside_a_prefill_is_slower_than_alone_when_measured() -> None:
    colocated = measure(PROFILE, TABLE, asked("colocated"))
    alone = measure(PROFILE, TABLE, asked("decode"))
    assert colocated.error is None
    assert len(colocated.decode_s) >= 4
    assert min(colocated.decode_s) > max(alone.decode_s)
    assert colocated.prefill_s[0] > measure(PROFILE, TABLE, asked("prefill")).prefill_s[0]


def test_a_step_takes_what_was_measured_when_served() -> None:
    running = engine("static:96,36", step_records=True)
    for number in range(16):
        running.submit(request(f"d{number}", 4000, 400), 0.0)
    run_until = 0.0
    while not any(one.decode_bs == 16 for one in running.drain_records()):
        run_until += 0.1
        running.advance(run_until)
    running.submit(request("p", 8192, 1), run_until)
    running.advance(run_until + 0.2)
    step = next(one for one in running.drain_records() if one.prefill_new_tokens and one.decode_bs == 16)
    contexts = (step.decode_reused_tokens // 16,) * 16
    found = measure(PROFILE, TABLE, asked("colocated", decode=contexts))
    assert step.measured_decode_s == pytest.approx(found.decode_s[0], rel=0.02)
    run_until_idle(running)


def test_a_prefill_alone_takes_what_was_measured_when_served() -> None:
    running = engine("muxwise", step_records=True)
    running.submit(request("p", 8192, 1), 0.0)
    run_until_idle(running)
    steps = [one for one in running.drain_records() if one.measured_prefill_s is not None]
    whole = measure(PROFILE, TABLE, asked("prefill", prefill_sms=132)).prefill_s[0]
    layers = sum(one.prefill_layers for one in steps)
    assert layers == PROFILE.model.layers
    assert sum(one.measured_prefill_s or 0.0 for one in steps) == pytest.approx(whole, rel=0.02)


def test_scatter_is_the_same_when_the_seed_is() -> None:
    noisy = [measure(PROFILE, TABLE, asked("decode"), Noise(ratio=0.1, seed=seed)) for seed in (1, 1, 2)]
    assert noisy[0] == noisy[1]
    assert noisy[0].decode_s != noisy[2].decode_s
    truth_s = PROFILE.truth.decode_s(DecodeShape(bs=16, reused_tokens=64000), 36)
    assert noisy[0].decode_s[0] == pytest.approx(truth_s, rel=0.5)
    assert noisy[0].decode_s[0] != truth_s


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"decode_sms": 37}, "96,37 SMs are no partition group"),
        ({"prefill_sms": 0, "mode": "prefill"}, "not possible on 132 SMs"),
        ({"decode": (824_128,)}, "KV tokens; the engine holds 824127"),
        ({"decode": ()}, "needs a decode batch"),
        ({"prefill": ()}, "needs a prefill"),
        ({"repeats": -1}, "repeats is -1"),
    ],
)
def test_a_point_is_refused_with_its_reason_when_the_device_cannot_run_it(
    changes: dict[str, object], error: str
) -> None:
    answer = measure(replace(PROFILE), TABLE, asked(**{"mode": "colocated", **changes}))
    assert answer.error is not None
    assert error in answer.error
