"""A target that no plan meets is named, with the lowest that one does, before anything has run too."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pdmuxd.controlplane.outlook.assumed_load import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_DECODE_BS,
    DEFAULT_NEW_TOKENS,
    Assumed,
)
from pdmuxd.controlplane.outlook.obstacles import obstacles_of
from pdmuxd.controlplane.outlook.what_if import Questions, in_words
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.profile import load_profile

HELLO: Any = SimpleNamespace(limits=EngineLimits(), settings_version=1)
STRICT = replace(DEFAULT_SLO, tbt_s=0.02)


@pytest.mark.parametrize(
    ("bs", "context", "new_tokens"),
    [(DEFAULT_DECODE_BS, DEFAULT_CONTEXT_TOKENS, DEFAULT_NEW_TOKENS), (6, 6000, 12_000)],
    ids=["nothing has run", "long documents"],
)
def test_20_ms_on_a_large_model_is_refused_in_words(bs: int, context: int, new_tokens: int) -> None:
    policy = build_policy("auto", load_profile("h200-codellama-34b-measured").policy_context)
    asked = Questions(policy, HELLO, "CodeLlama-34B")
    load = Assumed(
        decode_bs=bs,
        decode_context_tokens=context,
        prefill_new_tokens=new_tokens,
        prefill_reused_tokens=0,
        source="default",
    )
    (obstacle,) = obstacles_of(asked, STRICT, DEFAULT_SLO, load, None, (), "documents")
    assert obstacle.lowest_s is not None
    assert 0.024 < obstacle.lowest_s < 0.03
    assert obstacle.text.startswith("tbt_ms 20 is infeasible: the lowest feasible is 2")
    assert asked.ask(obstacle.lowest_s + 1e-4, load).is_feasible
    words = in_words(policy.name, asked.ask(STRICT.tbt_s, load), policy.table.groups, 0.02, 0.02)
    assert words.startswith("no split meets it; with most, 100 SMs decode")
    assert not obstacles_of(asked, STRICT, STRICT, load, None, (), "documents"), "it holds already"
