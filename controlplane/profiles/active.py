"""What the engine is told of the profile in force: as measured, with what was learned since."""

from __future__ import annotations

import msgspec
from sqlmodel import Session

from pdmuxd.controlplane.profiles.learned import LearnedRepository
from pdmuxd.controlplane.profiles.repository import ProfileRepository
from pdmuxd.controlplane.profiles.values import Learned
from pdmuxd.engine.link.predictors import Correction, Predictors
from pdmuxd.engine.profiling.gate import trusted


class ActivePredictors:
    """Reads them from one database; kept while nothing of them changes, since they are large."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[int, bool, Learned, bool], Predictors] | None = None
        """One value, so that threads see both halves or neither."""

    def read(self, session: Session) -> Predictors | None:
        """None while the profile in force is the engine's own."""
        profiles = ProfileRepository(session)
        active_id = profiles.active_id()
        if active_id is None:
            return None
        learned = LearnedRepository(session, active_id).read()
        known = (active_id, profiles.is_frozen(active_id), learned, profiles.is_forced())
        kept = self._kept
        if kept is None or kept[0] != known:
            profile = profiles.get(active_id).profile
            in_force = profile if known[3] else trusted(profile)
            measured = in_force.predictors(active_id)
            kept = self._kept = (known, _merged(measured, known[2], is_frozen=known[1]))
        return kept[1]


def _merged(measured: Predictors, learned: Learned, *, is_frozen: bool) -> Predictors:
    sizes = sorted({sms for _, sms in learned.corrections})
    ratios = learned.corrections
    return msgspec.structs.replace(
        measured,
        guard_cells=tuple(sorted({**dict(measured.guard_cells), **learned.cells}.items())),
        guard_frozen=is_frozen,
        corrections=tuple(
            Correction(
                sms=sms,
                prefill_ratio=ratios.get(("prefill", sms), 1.0),
                decode_ratio=ratios.get(("decode", sms), 1.0),
                fused_ratio=ratios.get(("fused", sms), 1.0),
            )
            for sms in sizes
        ),
    )
