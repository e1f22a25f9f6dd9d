"""A load in which prefills overtake each other several deep, for an SGLang on the CPU.

A wave is a long prompt and ever shorter ones behind it, each with less time than is left of the one before
it. Which of them come, when, and which are aborted, is drawn; each tenant's TTFT target is that of a length.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import late_device
import set_aside_log
import sglang_plugin
from sglang_processes import ANSWER_S, KEY, Answers, Link, Prompt, Prompts, ask_all, ask_tokens

from pdmuxd.engine.core.latency import DecodeCoefficients, FusedCoefficients, PrefillCoefficients
from pdmuxd.engine.link.predictors import Predictors, SoloRun

LAYERS = 16
TOKENS = (2400, 1200, 500, 220, 90, 30)
"""Of the prompts of a wave."""
PER_TOKEN_S = 0.008
"""As predicted; it is a fraction of that, so that nobody finds the predictions too short."""
TTFT_S = {"t0": 600.0, "t1": 18.2, "t2": 7.6, "t3": 3.4, "t4": 1.5, "t5": 0.6}
"""By tenant, of the lengths in the same order: less than is left of the one before it, and more than its
own."""
EACH = 2
"""Prompts of each length."""
GAP_RATIO = 0.3
"""Of the time that a prompt takes alone, which depends on the machine: until the next of the wave is sent."""
ABORTED = 0.2
"""Share of the requests."""
MAX_WAIT_S = 1800.0
"""Nobody is refused, however slow the machine is."""
DECODED_TOKENS = 120
"""Of the request that decodes beside a wave, if one is to."""
CHUNKS_TBT_S, CHUNKS_PER_TOKEN_S = 10.0, 0.02
"""Of a load in which prompts in chunks are overtaken. The prediction is by far too much for any machine, so
that policies plan for a wide scatter: some 180 prompt tokens in a step then."""
CHUNKS_TTFT_S = {"t0": 600.0, "t1": 600.0, "t2": 600.0, "t3": 20.0, "t4": 20.0, "t5": 20.0}
"""Less than the longest prompt is predicted to take, and more than a step."""
STRICT_TBT_S, STRICT = 0.3, ("t3", "t4", "t5")
"""Of a load with two TBT classes: a step of more than two requests is predicted to take longer."""


def variables(folder: Path) -> dict[str, str]:
    """The environment of a server that says how deep it is."""
    files = [Path(module.__file__) for module in (set_aside_log, late_device)]
    return sglang_plugin.install(folder, set_aside_log.NAME, files[0].stem, files)


def prompts(seed: int = 7) -> Prompts:
    """EACH of every length, the longest first; half of a length share their first third."""
    rng = random.Random(seed)
    made = []
    for size in TOKENS:
        shared = tuple(rng.randrange(3, 512) for _ in range(size // 3))
        for number in range(EACH):
            head = shared if number % 2 else ()
            own = tuple(rng.randrange(3, 512) for _ in range(size - len(head)))
            tokens = rng.choice((1, 2, 6, 16, 24))
            made.append(Prompt(at_s=0.0, tokens=head + own, output_tokens=tokens, abort_after=None))
    return Prompts(tuple(made))


def predictors(link: Link, per_token_s: float = PER_TOKEN_S) -> Predictors:
    """A prompt token takes so long on any SMs, and a decode step next to nothing of that."""
    prefill = PrefillCoefficients(
        per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=per_token_s, fixed_s=0.01
    )
    decode = DecodeCoefficients(per_reused_s=0.0, per_request_s=0.02, fixed_s=0.25)
    fused = FusedCoefficients(prefill=prefill, per_reused_s=0.0)
    sizes = {size for pair in link.hello.partitions for size in pair if size}
    return Predictors(
        profile_id=9,
        profile="slow",
        provenance="a test",
        solo_run=tuple(
            SoloRun(sms=sms, prefill=prefill, decode=decode, fused=fused) for sms in sorted(sizes)
        ),
        guard_default_ratio=1.0,
    )


ASKED = prompts()
DECODING = Prompt(at_s=0.0, tokens=tuple(range(40, 70)), output_tokens=DECODED_TOKENS, abort_after=None)


@dataclass(frozen=True)
class Undisturbed:
    """What each prompt gets by itself, in one batch as SGLang does it, and not by layers."""

    answers: Answers
    alone_s: tuple[float, ...]
    """Seconds, by length."""
    decoding: tuple[int, ...] = ()
    """Of the request that decodes beside the others, if it was asked."""


async def ask_undisturbed(base_url: str, link: Link, *, decoding: bool = False) -> Undisturbed:
    """One prompt after the other, under a policy that has no layers. `decoding`: that one as well."""
    await put_in_force(link, "chunked:4096", tbt_s=0.6)
    answers: Answers = []
    took_s = []
    for prompt in ASKED.all:
        begin_s = time.monotonic()
        answers += await ask_all(base_url, Prompts((prompt,)))
        took_s.append(time.monotonic() - begin_s)
    alone_s = tuple(min(took_s[i : i + EACH]) for i in range(0, len(took_s), EACH))
    said = await ask_all(base_url, Prompts((DECODING,))) if decoding else [[]]
    return Undisturbed(answers=answers, alone_s=alone_s, decoding=tuple(said[0]))


async def put_in_force(
    link: Link, policy: str, *, tbt_s: float, chunks: bool = False, classes: bool = False
) -> None:
    """A policy, with the targets and predictions of this load, or of one whose `chunks` are overtaken, or one
    of two TBT `classes`, of which the relaxed sit steps out."""
    await link.greeted()
    if chunks or classes:
        tbt_s = CHUNKS_TBT_S
    others_tbt_s = dict.fromkeys(TTFT_S, tbt_s)
    if classes:
        others_tbt_s |= dict.fromkeys(STRICT, STRICT_TBT_S)
    ack, _ = await link.set(
        policy,
        tbt_s=tbt_s,
        others_tbt_s=others_tbt_s,
        ttft_s=CHUNKS_TTFT_S if chunks else TTFT_S,
        predictors=predictors(link, CHUNKS_PER_TOKEN_S if chunks else PER_TOKEN_S),
        max_wait_s=MAX_WAIT_S,
    )
    assert ack.error is None, ack.error


@dataclass
class Outcome:
    """What became of the requests so far."""

    rids: list[str] = field(default_factory=list)
    whole: int = 0
    aborted: int = 0
    tokens: int = 0
    wrong: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    """Prompt, what was said, what should have been."""
    last_s: float = field(default_factory=time.monotonic)
    """When a request last got a token or ended."""
    stall_s: float = 0.0
    """The longest time in which none did, while some were open."""
    open: int = 0

    @property
    def asked(self) -> int:
        return len(self.rids)

    def moved(self) -> None:
        now_s = time.monotonic()
        if self.open:
            self.stall_s = max(self.stall_s, now_s - self.last_s)
        self.last_s = now_s


class Waves:
    """Sends waves to a server, and compares the answers with those that were given undisturbed."""

    def __init__(self, base_url: str, undisturbed: Undisturbed, *, seed: int) -> None:
        self._prompts, self._expected = list(ASKED.all), list(undisturbed.answers)
        if undisturbed.decoding:
            self._prompts.append(DECODING)
            self._expected.append(list(undisturbed.decoding))
        self._alone_s = undisturbed.alone_s
        self._rng = random.Random(seed)
        self._client = httpx.AsyncClient(
            base_url=base_url,
            limits=httpx.Limits(max_connections=None),
            timeout=300,
            headers={"Authorization": f"Bearer {KEY}"},
        )
        self.outcome = Outcome()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._client.aclose()

    async def send(self, *, abort: Collection[int] = ()) -> None:
        """One wave, to its end. `abort`: the lengths of which all are aborted when the shortest was sent;
        without any, those that are drawn, at moments that are drawn."""
        rng, sending = self._rng, []
        if len(self._prompts) > len(ASKED.all):
            sending.append(asyncio.create_task(self._ask(len(ASKED.all), "t0", None)))
        for length in range(len(TOKENS)):
            for _ in range(1 if length < 2 else rng.choice((1, 1, 2))):
                after_s = None
                if not abort and rng.random() < ABORTED:
                    after_s = rng.uniform(0.0, sum(self._alone_s))
                elif length in abort:
                    after_s = GAP_RATIO * sum(self._alone_s[length:])
                number = length * EACH + rng.randrange(EACH)
                sending.append(asyncio.create_task(self._ask(number, f"t{length}", after_s)))
            await asyncio.sleep(GAP_RATIO * self._alone_s[length] * rng.uniform(0.5, 1.5))
        await asyncio.gather(*sending)

    async def forget_prefixes(self) -> None:
        """Empty the prefix cache as soon as nothing is under way, so that the next wave's prompts are long
        again."""
        async with asyncio.timeout(ANSWER_S):
            while (await self._client.post("/flush_cache")).status_code != 200:  # noqa: ASYNC110 - it says nothing by itself
                await asyncio.sleep(0.2)

    async def _ask(self, number: int, tenant: str, abort_after_s: float | None) -> None:
        outcome, prompt, rid = self.outcome, self._prompts[number], uuid.uuid4().hex
        outcome.moved()
        outcome.rids.append(rid)
        outcome.open += 1
        aborting = None
        if abort_after_s is not None:
            aborting = asyncio.create_task(self._abort(rid, abort_after_s))
        said: list[int] = []
        answer = ask_tokens(self._client, prompt, rid, tenant, may_fail=aborting is not None)
        async for so_far in answer:
            said = so_far
            outcome.moved()
        outcome.moved()
        outcome.open -= 1
        if aborting is not None:
            await aborting
        should = self._expected[number]
        is_whole = said == should and len(said) == prompt.output_tokens
        outcome.whole += is_whole
        outcome.aborted += not is_whole and aborting is not None
        outcome.tokens += len(said)
        if not is_whole and (aborting is None or said != should[: len(said)]):
            outcome.wrong.append((number, said, should))

    async def _abort(self, rid: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        answer = await self._client.post("/abort_request", json={"rid": rid})
        assert answer.status_code == 200, answer.text


def depths(log: str) -> Counter[int]:
    """How often so many prefills were set aside, of a server's log."""
    return Counter(int(found) for found in re.findall(rf"{set_aside_log.SAYS}(\d+)", log))


def chunks_overtaken(log: str) -> int:
    """Steps that a prompt in chunks sat out, or had the rest of."""
    return log.count(set_aside_log.CHUNK_SAYS) + chunks_last(log)


def chunks_last(log: str) -> int:
    """Steps of which a prompt in chunks had what others left."""
    return log.count(set_aside_log.CHUNK_LAST_SAYS)
