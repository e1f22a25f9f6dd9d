"""Targets that no policy can meet are refused before any work is done."""

from __future__ import annotations

import math

from pdmuxd.engine.core.errors import SloError
from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.emulator.profile import Profile

LONE_REQUEST = DecodeShape(bs=1, reused_tokens=1024)
"""About the cheapest decode step that occurs."""


def check_tbt_feasible(profile: Profile, tbt_s: float) -> None:
    """Refuse a TBT target that even one short request alone on all SMs misses.

    Raises: SloError with the lowest feasible target in milliseconds.
    """
    total_sms = profile.device.total_sms
    alone_s = profile.predictor.decode_s(LONE_REQUEST, total_sms)
    if alone_s <= tbt_s:
        return
    lowest_ms = math.ceil(alone_s * 10_000.0) / 10.0
    raise SloError(
        f"a TBT target of {tbt_s * 1000.0:g} ms is infeasible with {profile.name}: one short request alone "
        f"on all {total_sms} SMs takes longer for a token; the lowest feasible target is {lowest_ms:g} ms"
    )
