"""Prompts in chunks that sit steps out for urgent ones, on the real SGLang: nobody's tokens change, whoever
is aborted, whatever policy comes, and all is given back."""

import asyncio
import random
import uuid
from collections import Counter
from dataclasses import dataclass, field

import httpx
import pytest
from changing_policies import HEADERS, flush
from nested_prefills import (
    CHUNKS_PER_TOKEN_S,
    CHUNKS_TBT_S,
    chunks_last,
    chunks_overtaken,
    predictors,
    variables,
)
from sglang_processes import Link, OurServer, Prompt, Prompts, ask_all, ask_tokens

from pdmuxd.engine.link.messages import HOST_DELAY_S

LONG, URGENT, DECODING = "long", "urgent", "decoding"
TTFT_S = {LONG: 600.0, URGENT: 20.0, DECODING: 600.0}
LONG_TOKENS, URGENT_TOKENS, HEAD_TOKENS = 2400, 100, 300
DECODED_TOKENS = 400
"""Of the request that decodes beside all that, and is aborted when the others have ended."""
VOLLEYS, VOLLEY = 2, 8
"""Urgent prompts of a round: one or two fit into a step, so that a volley takes several steps."""
TRIES = 4
"""At a round, until the prompt was overtaken often enough: others may use the machine."""


def tokens_of(rng, count, head=()):
    return head + tuple(rng.randrange(3, 512) for _ in range(count - len(head)))


def prompt(tokens, outputs):
    return Prompt(at_s=0.0, tokens=tokens, output_tokens=outputs, abort_after=None)


@dataclass
class Round:
    """A decoding request, a prompt in chunks beside it, and urgent ones; half of them begin as it does, and
    it as that of any other round does."""

    decoding: Prompt
    long: Prompt
    urgent: list[Prompt]
    expected: dict[Prompt, list[int]] = field(default_factory=dict)

    @classmethod
    def make(cls, seed):
        rng, all_share = random.Random(seed), random.Random(0)
        long = prompt(tokens_of(rng, LONG_TOKENS, tokens_of(all_share, HEAD_TOKENS)), 6)
        heads = ((), long.tokens[: HEAD_TOKENS + 40])
        made = [
            prompt(tokens_of(rng, URGENT_TOKENS + len(heads[n % 2]), heads[n % 2]), 4)
            for n in range(VOLLEYS * VOLLEY)
        ]
        return cls(prompt(tokens_of(rng, 30), DECODED_TOKENS), long, made)

    @property
    def all(self):
        return [self.decoding, self.long, *self.urgent]


class Clients:
    """Ask, abort, and compare."""

    def __init__(self, base_url, expected):
        self._client = httpx.AsyncClient(base_url=base_url, timeout=300, headers=HEADERS)
        self._expected = expected
        self.asked = self.aborted = 0
        self.wrong = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._client.aclose()

    def ask(self, prompt, tenant, *, may_fail=False):
        """The request's id, a task that ends with it, and the event of its first token."""
        rid, first = uuid.uuid4().hex, asyncio.Event()
        return rid, asyncio.create_task(self._follow(prompt, rid, tenant, first, may_fail)), first

    async def abort(self, rid):
        assert (await self._client.post("/abort_request", json={"rid": rid})).status_code == 200

    async def _follow(self, prompt, rid, tenant, first, may_fail):
        said = []
        self.asked += 1
        async for so_far in ask_tokens(self._client, prompt, rid, tenant, may_fail=may_fail):
            said = so_far
            first.set()
        first.set()
        should = self._expected[prompt]
        if may_fail and len(said) < len(should):
            self.aborted += 1
            should = should[: len(said)]
        if said != should:
            self.wrong.append((tenant, said, should))


async def play(clients, one, *, abort_long=False, abort_urgent=(), meanwhile=None):
    """Send the round; once the first urgent request has its token, abort who is to be, and do `meanwhile`."""
    decoding_id, decoding, decodes = clients.ask(one.decoding, DECODING, may_fail=True)
    await decodes.wait()
    long_id, long, _ = clients.ask(one.long, LONG, may_fail=abort_long)
    await asyncio.sleep(0.05)
    tasks = [long]
    for volley in range(VOLLEYS):
        numbers = range(volley * VOLLEY, (volley + 1) * VOLLEY)
        asked = [clients.ask(one.urgent[n], URGENT, may_fail=n in abort_urgent) for n in numbers]
        tasks += [task for _, task, _ in asked]
        await asyncio.wait(
            [asyncio.ensure_future(first.wait()) for *_, first in asked], return_when=asyncio.FIRST_COMPLETED
        )
        if volley == 0 and abort_long:
            await clients.abort(long_id)
        if volley == 0 and meanwhile is not None:
            await meanwhile()
        await asyncio.gather(
            *(clients.abort(rid) for n, (rid, *_) in zip(numbers, asked, strict=True) if n in abort_urgent)
        )
    await asyncio.gather(*tasks)
    await clients.abort(decoding_id)
    await decoding


@pytest.fixture(scope="module")
def server(python, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chunks")
    with OurServer(python, model, folder, policy="auto", variables=variables(folder)) as server:
        yield server


@pytest.fixture
async def link(server):
    async with Link(server.link_address) as link:
        yield link


async def put(link, policy):
    await link.greeted()
    ack, _ = await link.set(
        policy,
        tbt_s=CHUNKS_TBT_S,
        others_tbt_s=dict.fromkeys(TTFT_S, CHUNKS_TBT_S),
        ttft_s=TTFT_S,
        predictors=predictors(link, CHUNKS_PER_TOKEN_S),
    )
    assert ack.error is None, ack.error


async def test_tokens_are_those_of_an_undisturbed_run_when_a_prompt_in_chunks_is_overtaken(server, link):
    await put(link, "chunked:4096")
    rounds = [Round.make(seed) for seed in range(1, 6)]
    expected = {}
    for each in (prompt for one in rounds for prompt in one.all):
        (expected[each],) = await ask_all(server.base_url, Prompts((each,)))
    assert len({tuple(answer) for answer in expected.values()}) > 40, "a comparison of constants"
    await link.idle()
    assert await asyncio.to_thread(flush, server) == 200
    link.records.clear()
    await put(link, "auto:nosplit")

    async def change():
        for policy in ("chunked:64", "muxwise", "auto:nosplit"):
            await put(link, policy)

    overtaken = []
    plain, long_gone, urgent_gone, changed, both = rounds
    async with Clients(server.base_url, expected) as clients:
        for one, disturbance in (
            (plain, {}),
            (long_gone, {"abort_long": True}),
            (urgent_gone, {"abort_urgent": (1, 3, 5, 6)}),
            (changed, {"meanwhile": change}),
            (both, {"abort_long": True, "meanwhile": change}),
        ):
            for _ in range(TRIES):
                before = chunks_overtaken(server.log)
                await play(clients, one, **disturbance)
                overtaken.append(chunks_overtaken(server.log) - before)
                await link.idle()
                if overtaken[-1] >= 2:
                    break
                assert await asyncio.to_thread(flush, server) == 200, "it would not be in chunks again"
    print(f"overtaken {overtaken}, {clients.asked} asked, {clients.aborted} aborted")
    assert clients.wrong == []
    assert sum(steps >= 2 for steps in overtaken) == len(rounds), overtaken
    assert chunks_last(server.log) >= 2
    assert clients.aborted > 0
    assert await asyncio.to_thread(flush, server) == 200
    stats = await link.told(lambda stats: not stats.cached_tokens)
    assert (stats.kv_used_tokens, stats.dropped_records) == (0, 0)
    assert "leak" not in server.log
    followed = [step for step in link.steps if step.host_late_s is not None]
    assert len(followed) > 50
    assert all(0.0 <= step.host_late_s <= step.measured_step_s for step in followed)
    assert stats.host_delays == sum(step.host_late_s > HOST_DELAY_S for step in followed)
    assert stats.stalls == sum(step.stall_s > 0.0 for step in link.steps)
    ended = Counter(record.request_id for record in link.records)
    assert (len(ended), max(ended.values())) == (clients.asked, 1)
