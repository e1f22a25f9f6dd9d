from __future__ import annotations

import pytest
import typer

from pdmuxd.daemon.cli.tuning import candidates, in_a_line, proposal

TARGETS = {
    "ttft_fixed_ms": 500.0,
    "ttft_per_1k_new_tokens_ms": 800.0,
    "tbt_ms": 40.0,
    "attainment_ratio": 0.99,
}


def outcome(*kept: bool, goodput: float = 1.0, needed_ms: float | None = 100.0) -> dict[str, object]:
    tenants = [
        {"tenant": name, "kept": one, "needed_ttft_fixed_ms": needed_ms}
        for name, one in zip(("chat", "search"), kept, strict=True)
    ]
    return {"tenants": tenants, "goodput_per_s": goodput}


def test_the_strictest_that_all_survive_is_proposed_by_the_better_policy() -> None:
    variants = candidates("chat", TARGETS, "20,30", "auto,muxwise")
    assert [one["label"] for one in variants][:2] == ["auto, TBT 20 ms", "auto, TBT 30 ms"]
    outcomes = [
        outcome(True, True),
        outcome(True, False),
        outcome(True, True, goodput=1.0),
        outcome(False, True),
        outcome(True, True, goodput=2.0),
    ]
    found = proposal("chat", {"outcomes": outcomes}, variants)
    assert found == {"policy": "muxwise", "targets": TARGETS | {"tbt_ms": 30.0, "ttft_fixed_ms": 111.0}}
    assert in_a_line("chat", found) == (
        "proposed for chat: TBT 30 ms, TTFT 111 ms and 800 ms per 1,000 new tokens, policy muxwise"
    )


def test_a_ttft_is_never_loosened() -> None:
    variants = candidates("chat", TARGETS, "30", None)
    found = proposal(
        "chat", {"outcomes": [outcome(True, True), outcome(True, True, needed_ms=900.0)]}, variants
    )
    assert found is not None
    assert (found["policy"], found["targets"]["ttft_fixed_ms"]) == (None, 500.0)


def test_nothing_is_proposed_when_a_promise_would_break() -> None:
    variants = candidates("chat", TARGETS, None, None)
    assert [one["targets"]["chat"]["tbt_ms"] for one in variants] == [20.0, 24.0, 28.0, 34.0, 40.0]
    outcomes = [outcome(True, True), *(outcome(True, False) for _ in variants)]
    assert proposal("chat", {"outcomes": outcomes}, variants) is None
    assert "nothing is proposed" in in_a_line("chat", None)


@pytest.mark.parametrize(("tbt_ms", "policies"), [("x", None), (",".join(["20"] * 7), "auto,duet")])
def test_what_cannot_be_tried_is_refused(tbt_ms: str, policies: str | None) -> None:
    with pytest.raises(typer.BadParameter):
        candidates("chat", TARGETS, tbt_ms, policies)
