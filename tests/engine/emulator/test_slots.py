"""Decode slots that are all in use: who gets the next one."""

from __future__ import annotations

from engines import engine, request, run_until_idle

from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase

SLOTS = 16


def served(few_tenant: str) -> tuple[EmulatedRequest, list[EmulatedRequest]]:
    """One request behind a hundred that began to come before it, and those."""
    emulated = engine("auto", limits=EngineLimits(max_decode_bs=SLOTS))
    many = [
        request(f"m{i}", 60, 40 + 5 * (i % SLOTS), arrival_s=0.005 * i, tenant="many") for i in range(100)
    ]
    few = request("few", 3000, 5, arrival_s=0.3, tenant=few_tenant)
    for each in sorted([*many, few], key=lambda each: each.arrival_s):
        emulated.submit(each, each.arrival_s)
        assert emulated.counters().running <= SLOTS
    run_until_idle(emulated)
    assert all(each.phase is Phase.FINISHED for each in (*many, few))
    return few, many


def began_while_it_waited(few: EmulatedRequest, many: list[EmulatedRequest]) -> int:
    assert few.prefill_start_s is not None
    starts_s = [each.prefill_start_s for each in many if each.prefill_start_s is not None]
    assert len(starts_s) == len(many)
    return sum(few.arrival_s < start_s < few.prefill_start_s for start_s in starts_s)


def test_a_tenant_that_holds_none_gets_the_next_slot_when_another_holds_all() -> None:
    assert began_while_it_waited(*served("few")) <= 1
    assert began_while_it_waited(*served("many")) > 1, "by slack it is behind them"
