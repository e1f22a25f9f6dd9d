"""Times are told apart by the targets that held, and put together when the same hold again."""

from __future__ import annotations

from dataclasses import replace

from pdmuxd.controlplane.telemetry.regimes import KEPT, Regimes
from pdmuxd.engine.core.slo import Slo

LOOSE = Slo(ttft_fixed_s=8.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=0.4, attainment_ratio=0.9)
STRICT = replace(LOOSE, tbt_s=0.02)


def test_times_under_the_same_targets_are_one_regime() -> None:
    regimes = Regimes()
    regimes.began(100.0)
    assert [(one.spans, one.differs) for one in regimes.last(110.0)] == [(((100.0, 110.0),), {})]
    regimes.changed([("chat", LOOSE, STRICT)], 110.0)
    regimes.changed([("chat", STRICT, LOOSE)], 150.0)
    now, strict = regimes.last(160.0)
    assert (now.spans, now.differs) == (((150.0, 160.0), (100.0, 110.0)), {})
    assert (strict.spans, strict.differs) == (((110.0, 150.0),), {"chat": STRICT})
    assert [now.has(at_s) for at_s in (99.0, 105.0, 120.0, 155.0)] == [False, True, False, True]


def test_what_held_before_another_tenants_edit_is_told_with_it() -> None:
    regimes = Regimes()
    regimes.changed([("chat", LOOSE, STRICT)], 10.0)
    regimes.changed([("docs", LOOSE, STRICT), ("chat", STRICT, LOOSE)], 20.0)
    assert [one.differs for one in regimes.last(30.0)] == [
        {},
        {"docs": LOOSE, "chat": STRICT},
        {"docs": LOOSE},
    ]


def test_another_engine_or_policy_is_a_new_beginning_and_old_changes_are_forgotten() -> None:
    regimes = Regimes()
    regimes.changed([("chat", LOOSE, STRICT)], 10.0)
    regimes.began(20.0)
    assert [one.spans for one in regimes.last(30.0)] == [((20.0, 30.0),)]
    for number in range(KEPT + 3):
        regimes.changed([("chat", LOOSE, replace(LOOSE, tbt_s=0.1 + number / 1000))], 30.0 + number)
    regimes.changed([], 99.0)
    assert min(begin for one in regimes.last(200.0) for begin, _ in one.spans) == 32.0
