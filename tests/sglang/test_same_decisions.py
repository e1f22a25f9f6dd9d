"""One trace through the one loop: on the real scheduler with the CPU stand-in, and on the emulated GPU.

Compared is what was decided and launched, step by step: mode, reason, prompt tokens with the cached ones
before them, requests that decode, layers. The requests follow each other, as on a CPU a launch takes as long
as its work and who is together in a batch would be the machine's doing. Times are not compared, nor
predictions: they are of two devices. The emulated one has the model, the limits and the overheads that
SGLang's engine told.
"""

from __future__ import annotations

import asyncio

import pytest
from changing_policies import flush
from sglang_processes import Link, Prompt, Prompts, ask_all

from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import FORMAT, Profile
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.link.messages import Hello, IterationRecord

LENGTHS = ((40, 6), (3, 1), (300, 4), (900, 3), (64, 2), (65, 8))
"""Prompt and output tokens; each prompt begins with another token, so that none is cached."""
BETWEEN_S = 10.0


def prompts() -> list[Prompt]:
    return [
        Prompt(
            at_s=0.0,
            tokens=tuple(3 + (number * 37 + position) % 500 for position in range(tokens)),
            output_tokens=outputs,
            abort_after=None,
        )
        for number, (tokens, outputs) in enumerate(LENGTHS)
    ]


def steps(records: list[IterationRecord]) -> list[tuple[object, ...]]:
    return [
        (
            record.mode,
            record.reason,
            record.prefill_new_tokens,
            record.prefill_reused_tokens,
            record.prefill_bs,
            record.decode_bs,
            record.prefill_layers,
        )
        for record in records
    ]


def emulated(hello: Hello, policy: str) -> list[tuple[object, ...]]:
    """The same requests on the emulated GPU, as if it were the engine that introduced itself."""
    profile = Profile(
        format=FORMAT,
        name="told",
        provenance="derived: what the engine says of itself",
        model=hello.model_shape,
        device=hello.device_shape,
        overheads=hello.overheads,
        kv_capacity_tokens=hello.kv_capacity_tokens,
        guard_default_ratio=1.3,
        contention_ratio=0.0,
        solo_run=(),
    )
    limits = hello.limits
    engine = EmulatedEngine(profile=profile, policy=policy, limits=limits, step_records=True, block_tokens=1)
    requests = [
        EmulatedRequest(
            request_id=str(number),
            tenant="default",
            arrival_s=number * BETWEEN_S,
            input_tokens=tokens,
            output_tokens=outputs,
        )
        for number, (tokens, outputs) in enumerate(LENGTHS)
    ]
    drive(engine, requests, sample_every_s=BETWEEN_S, on_sample=lambda _: None)
    return steps(engine.drain_records())


@pytest.mark.parametrize("policy", ["chunked:64", "prefill-first:128", "static:84,48", "muxwise"])
async def test_the_same_is_decided_on_the_real_scheduler_and_on_the_emulated_gpu(ours, policy):
    async with Link(ours.link_address) as link:
        ack, _ = await link.set(policy, tbt_s=1.0)
        assert ack.error is None
        await link.idle()
        assert await asyncio.to_thread(flush, ours) == 200, "the policy before had the same prompts"
        link.steps.clear()
        for prompt in prompts():
            await ask_all(ours.base_url, Prompts((prompt,)))
            await link.idle()
        await asyncio.sleep(0.2)
        assert link.hello is not None
        real = steps(link.steps)
        assert len(real) >= sum(outputs for _, outputs in LENGTHS)
        assert real == emulated(link.hello, policy)
