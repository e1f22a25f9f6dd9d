from __future__ import annotations

import pytest
import typer

from pdmuxd.daemon.cli.tuning import (
    candidates,
    first_kept,
    in_a_line,
    proposals,
    require_traffic,
)

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
    found = proposals("chat", {"outcomes": outcomes}, variants)[0]
    assert found == {"policy": "muxwise", "targets": TARGETS | {"tbt_ms": 30.0, "ttft_fixed_ms": 111.0}}
    assert in_a_line("chat", found) == (
        "proposed for chat: TBT 30 ms, TTFT 111 ms and 800 ms per 1,000 new tokens, policy muxwise"
    )


def test_a_ttft_is_never_loosened() -> None:
    variants = candidates("chat", TARGETS, "30", None)
    (found,) = proposals(
        "chat", {"outcomes": [outcome(True, True), outcome(True, True, needed_ms=900.0)]}, variants
    )
    assert (found["policy"], found["targets"]["ttft_fixed_ms"]) == (None, 500.0)


def test_nothing_is_proposed_when_a_promise_would_break() -> None:
    variants = candidates("chat", TARGETS, None, None)
    assert [one["targets"]["chat"]["tbt_ms"] for one in variants] == [20.0, 24.0, 28.0, 34.0, 40.0]
    outcomes = [outcome(True, True), *(outcome(True, False) for _ in variants)]
    assert proposals("chat", {"outcomes": outcomes}, variants) == []
    assert "nothing is proposed" in in_a_line("chat", None)


@pytest.mark.parametrize(("tbt_ms", "policies"), [("x", None), (",".join(["20"] * 7), "auto,duet")])
def test_what_cannot_be_tried_is_refused(tbt_ms: str, policies: str | None) -> None:
    with pytest.raises(typer.BadParameter):
        candidates("chat", TARGETS, tbt_ms, policies)


def test_what_delivery_adds_is_left_over_with_a_margin() -> None:
    variants = candidates("chat", TARGETS, "20,30", None)
    outcomes = [outcome(True, True), *(outcome(True, True) for _ in variants)]
    for one in outcomes:
        one["tenants"][0]["tbt_p99_ms"] = 17.0  # type: ignore[index]
    replay = {"outcomes": outcomes}
    assert [one["targets"]["tbt_ms"] for one in proposals("chat", replay, variants)] == [20.0, 30.0]
    (found,) = proposals("chat", replay, variants, gap_delivery_ms=5.0, ttft_delivery_ms=50.0)
    assert (found["targets"]["tbt_ms"], found["targets"]["ttft_fixed_ms"]) == (30.0, 165.0)


def test_the_first_is_proposed_that_is_predicted_to_be_kept_by_all() -> None:
    found = [{"policy": None, "targets": TARGETS | {"tbt_ms": tbt_ms}} for tbt_ms in (20.0, 30.0)]

    def preview(targets):
        expected = "at_risk" if targets["tbt_ms"] < 30.0 else "kept"
        return {"tenants": [{"expected": expected}, {"expected": None}]}

    assert first_kept(found, preview) == found[1]
    assert first_kept(found[:1], preview) is None


def test_too_little_traffic_is_refused() -> None:
    own = {"tenant": "chat", "requests": 535}
    with pytest.raises(typer.BadParameter, match="535 requests of chat are too few"):
        require_traffic("chat", {"outcomes": [{"tenants": [own]}]}, 0.99)
    require_traffic("chat", {"outcomes": [{"tenants": [own | {"requests": 536}]}]}, 0.99)
    with pytest.raises(typer.BadParameter, match="0 requests"):
        require_traffic("chat", {"outcomes": [{"tenants": []}]}, 0.5)
