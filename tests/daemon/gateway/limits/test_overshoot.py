"""No pattern of requests gets past a limit of tokens by more than one request.

The machine is a tenant with two keys that tries: it trains with short answers, comes with bursts of requests
that may use anything, ends them in any order with anything up to that, several answers one by one, cuts some
off, loses records, and waits. The rule is checked on what was really used, as the machine itself counts it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from limited_tenant import DEAR, Clock, limits, record

from pdmuxd.controlplane.tenants.records import Identity, KeyRecord, TenantRecord
from pdmuxd.daemon.gateway.limits import limiter as limiters
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import DEFAULT_SLO

OF_TENANT = {
    "output_tokens_per_min": 1000,
    "input_tokens_per_min": 3000,
    "tokens_per_day": 5000,
    "spend_cents_per_day": 300,
}
OF_KEY = {"output_tokens_per_min": 400, "tokens_per_day": 2000, "spend_cents_per_month": 120}
KEYS = ("key_a", "key_b")


@dataclass
class Sent:
    key: str
    size: int
    most: int
    answers: int
    told: int = 0
    used: list[tuple[float, int, int]] = field(default_factory=list)
    """When the use of an answer was known, its prompt tokens, its output tokens."""

    def amount(self, limit: str, since_s: float) -> float:
        known = [each for each in self.used if each[0] > since_s]
        prompts, outputs = sum(each[1] for each in known), sum(each[2] for each in known)
        if limit.startswith("spend"):
            return prompts / 20 + outputs / 10
        return {"output_tokens_per_min": outputs, "input_tokens_per_min": prompts}.get(
            limit, prompts + outputs
        )


class RedTeam(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.limiter = Limiter(clock=self.clock, wall=self.clock.wall)
        self.sent: dict[str, Sent] = {}
        self.open: list[str] = []
        self.day_s = self.clock.now_s

    def teardown(self) -> None:
        self.loop.close()

    @initialize(are_keys_limited=st.booleans())
    def come(self, *, are_keys_limited: bool) -> None:
        tenant = TenantRecord(
            name="chat",
            enabled=True,
            slo=DEFAULT_SLO,
            slo_version=1,
            max_in_flight=10_000,
            limits=limits(**OF_TENANT),
        )
        self.of_key = OF_KEY if are_keys_limited else {}
        self.limiter.use_tenants({"chat": tenant})
        self.limiter.use_prices(DEAR)
        self.identities = {
            key: Identity(
                tenant=tenant,
                key=KeyRecord(
                    key_id=key,
                    tenant="chat",
                    scopes=frozenset(),
                    expires_at_s=None,
                    limits=limits(**self.of_key),
                ),
            )
            for key in KEYS
        }

    def enter(self, sent: Sent) -> str | None:
        rid = f"r{len(self.sent)}"
        need = Need(places=sent.answers, input_tokens=sent.size, output_tokens=sent.most * sent.answers)
        try:
            if not self.limiter.enter_now(rid, self.identities[sent.key], need):
                return None
        except RequestError:
            return None
        self.sent[rid] = sent
        return rid

    def tell(self, rid: str, part: float) -> None:
        """One answer has ended and used a part of what it may use."""
        sent = self.sent[rid]
        prompt, output = int(sent.size / sent.answers * part), int(sent.most * part)
        name = rid if sent.answers == 1 else f"{rid}_{sent.told}"
        sent.told += 1
        sent.used.append((self.clock.now_s, prompt, output))
        self.limiter.on_request(record(name, new=prompt, output=output))

    def leave(self, rid: str, *, was_served: bool) -> None:
        async def leaves() -> None:
            self.limiter.leave(rid, was_served=was_served)

        self.loop.run_until_complete(leaves())

    @rule(key=st.sampled_from(KEYS), times=st.integers(1, 60))
    def train(self, key: str, times: int) -> None:
        for _ in range(times):
            rid = self.enter(Sent(key, size=4, most=1, answers=1))
            if rid is not None:
                self.tell(rid, 1.0)
                self.leave(rid, was_served=True)

    @rule(
        key=st.sampled_from(KEYS),
        times=st.integers(1, 40),
        size=st.integers(1, 6000),
        most=st.sampled_from([1, 50, 500, 1000, 131_072]),
        answers=st.integers(1, 4),
    )
    def burst(self, key: str, times: int, size: int, most: int, answers: int) -> None:
        for _ in range(times):
            rid = self.enter(Sent(key, size=size, most=most, answers=answers))
            if rid is not None:
                self.open.append(rid)

    @rule(which=st.integers(0, 10**6), part=st.sampled_from([0.0, 0.1, 1.0]), is_cut=st.booleans())
    def end(self, which: int, part: float, *, is_cut: bool) -> None:
        """An answer ends; where it is cut off, its client leaves before the engine says what it used."""
        if not self.open:
            return
        rid = self.open.pop(which % len(self.open))
        if is_cut:
            self.leave(rid, was_served=True)
        while self.sent[rid].told < self.sent[rid].answers:
            self.tell(rid, part)
        if not is_cut:
            self.leave(rid, was_served=True)

    @rule(which=st.integers(0, 10**6), part=st.sampled_from([0.1, 1.0]))
    def end_one_answer(self, which: int, part: float) -> None:
        several = [rid for rid in self.open if self.sent[rid].told < self.sent[rid].answers - 1]
        if several:
            self.tell(several[which % len(several)], part)

    @rule(which=st.integers(0, 10**6))
    def fail(self, which: int) -> None:
        """The engine refuses one, and no record comes."""
        untold = [rid for rid in self.open if not self.sent[rid].told]
        if untold:
            rid = untold[which % len(untold)]
            self.open.remove(rid)
            self.leave(rid, was_served=False)

    @rule(seconds=st.sampled_from([0.5, 20.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @invariant()
    def no_limit_is_passed_by_more_than_one_request(self) -> None:
        self.check(OF_TENANT, list(self.sent.values()))
        for key in KEYS:
            self.check(getattr(self, "of_key", {}), [each for each in self.sent.values() if each.key == key])

    def check(self, limited: dict[str, int], sent: list[Sent]) -> None:
        for name, value in limited.items():
            since_s = self.clock.now_s - 60.0 if name.endswith("min") else 0.0
            amounts = [each.amount(name, since_s) for each in sent]
            assert sum(amounts) - max(amounts, default=0) <= value, name


TestRedTeam = RedTeam.TestCase
TestRedTeam.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


async def test_a_lost_record_counts_as_what_was_reserved_when_others_come_meanwhile(rig, monkeypatch):
    monkeypatch.setattr(limiters, "RECORD_WITHIN_S", 0.0)
    rig.use(tokens_per_day=1000)
    rig.limiter.leave(rig.enter(size=0, most=600), was_served=True)
    async with asyncio.timeout(60):
        while rig.limiter.of_tenant("chat")["tokens_per_day"] != 600 or not rig.limiter.take_unsaved():  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert rig.limiter.of_tenant("chat")["tokens_per_day"] == 600
