from __future__ import annotations

import re

import pytest

from pdmuxd.daemon.replay.feasible import check_tbt_feasible
from pdmuxd.engine.core.errors import SloError
from pdmuxd.engine.emulator.profile import available_profiles, load_profile


@pytest.mark.parametrize("name", available_profiles())
def test_the_lowest_feasible_target_passes_and_a_lower_one_does_not_when_checked(name: str) -> None:
    profile = load_profile(name)
    with pytest.raises(SloError, match=f"a TBT target of 1 ms is infeasible with {name}") as caught:
        check_tbt_feasible(profile, 0.001)
    lowest_ms = float(re.search(r"target is ([\d.]+) ms$", str(caught.value))[1])  # type: ignore[index]
    check_tbt_feasible(profile, lowest_ms / 1000.0 + 1e-12)
    with pytest.raises(SloError):
        check_tbt_feasible(profile, (lowest_ms - 0.1) / 1000.0)
