from __future__ import annotations

import math

import pytest

from pdmuxd.engine.core.errors import SloError
from pdmuxd.engine.core.slo import DEFAULT_SLO, Slo


def test_ttft_target_grows_with_new_tokens_when_the_prompt_is_long() -> None:
    slo = Slo(ttft_fixed_s=0.5, ttft_per_1k_new_tokens_s=0.2, tbt_s=0.05, attainment_ratio=0.99)
    assert slo.ttft_target_s(0) == 0.5
    assert slo.ttft_target_s(4000) == pytest.approx(1.3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tbt_s", 0.0),
        ("tbt_s", math.nan),
        ("tbt_s", math.inf),
        ("ttft_fixed_s", -1.0),
        ("ttft_per_1k_new_tokens_s", 601.0),
        ("attainment_ratio", 1.0),
    ],
)
def test_the_field_and_its_range_are_named_when_a_value_is_out_of_range(field: str, value: float) -> None:
    values = {
        "ttft_fixed_s": DEFAULT_SLO.ttft_fixed_s,
        "ttft_per_1k_new_tokens_s": DEFAULT_SLO.ttft_per_1k_new_tokens_s,
        "tbt_s": DEFAULT_SLO.tbt_s,
        "attainment_ratio": DEFAULT_SLO.attainment_ratio,
        field: value,
    }
    with pytest.raises(SloError, match=rf"^{field} is .*; allowed are "):
        Slo(**values)
