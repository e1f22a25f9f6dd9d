"""What each mechanism adds, in words."""

from __future__ import annotations

import pytest
from comparisons import document, plan

from pdmuxd.daemon.compare.goodput import CellGoodput, SeedGoodput
from pdmuxd.daemon.compare.ladder import RUNGS, gain, gain_text, ladder_notes, rungs
from pdmuxd.daemon.compare.stages import Comparison
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.emulator.profile import load_profile

OF = plan()


def compared(*rates_rps: tuple[float, float], specs: tuple[str, ...] = rungs(512)) -> Comparison:
    """Two seeds each."""
    cells = tuple(
        CellGoodput(
            policy=spec,
            tbt_s=0.05,
            seeds=tuple(
                SeedGoodput(seed=seed, rate_rps=rate_rps, metrics=None, probes=(), seconds=60.0)
                for seed, rate_rps in enumerate(pair)
            ),
        )
        for spec, pair in zip(specs, rates_rps, strict=True)
    )
    return Comparison(cells=cells, curve=(), common=())


def test_every_rung_can_be_built() -> None:
    context = load_profile("h200-llama-8b").policy_context
    assert [build_policy(spec, context).name for spec in rungs(1024)] == list(rungs(1024))
    assert rungs(1024)[-1] == "auto"


def test_gains_are_told_over_the_rung_below_and_whether_they_are_told_apart() -> None:
    steady = [(1.0, 1.0), (2.0, 2.0), (2.0, 2.0), (3.0, 3.0), (3.0, 3.3), (0.0, 0.0)]
    (note,) = ladder_notes(document(OF, compared(*steady)))
    assert note == (
        "TBT 50 ms, chunked:512: in order of arrival 1/s; + in slack order 2/s (+100%); + a budget from the "
        "target 2/s (+0%, not told apart); + preemption 3/s (+50%); + splits 3.15/s (+5%, not told apart); "
        "+ look-ahead 0/s (-100%)."
    )


def test_nothing_is_said_when_a_rung_is_missing() -> None:
    pairs = [(1.0, 1.0)] * (len(RUNGS) - 1)
    assert list(ladder_notes(document(OF, compared(*pairs, specs=rungs(512)[:-1])))) == []


@pytest.mark.parametrize(("first", "told"), [(0.0, "nothing was held before"), (None, "nothing is held")])
def test_a_rung_that_holds_nothing_gives_no_share(first: float | None, told: str) -> None:
    rest = 0.0 if first is None else 1.0
    pairs = [(0.0, 0.0)] + [(rest, rest)] * (len(RUNGS) - 1)
    (note,) = ladder_notes(document(OF, compared(*pairs)))
    assert told in note


def test_seeds_are_compared_one_by_one_so_that_their_luck_does_not_count() -> None:
    found = gain([1.0, 2.0, 8.0], [1.1, 2.2, 8.9])
    assert found is not None
    assert found.ratio == pytest.approx(0.1, abs=0.01)
    assert found.is_told_apart


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ([2.0], [3.0], "+50%, not told apart"),  # one seed tells nothing
        ([2.0, 2.0, 2.0], [8.0, 6.0, 11.0], "+304%"),
        ([2.0, 2.0, 2.0], [2.0, 0.0, 2.0], "-33%, not told apart"),
        ([2.0, 0.0], [2.0, 1.0], "nothing was held before"),
    ],
)
def test_what_a_rung_gives(before: list[float], now: list[float], told: str) -> None:
    assert gain_text(before, now) == told
