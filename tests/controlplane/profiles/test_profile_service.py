"""Profiles in the store: which is in force, what was learned, and what an engine is told."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from profiling import greeting_of, measured_profile
from stores import FakeClock, opened

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, NotFoundError
from pdmuxd.engine.core.guard import GuardCell
from pdmuxd.engine.core.shapes import TensorParallel
from pdmuxd.engine.link.predictors import Correction, Predictors
from pdmuxd.engine.profiling.corrections import Change, Predictor

CELL: GuardCell = (36, 2, 0, 5, 3)
RAISED = Change(kind="raised", cell=CELL, before=1.2, after=1.35, evidence="a step of 20 ms, 15 ms predicted")
SLOWER = Change(
    kind="corrected", predictor="decode", sms=36, before=1.0, after=1.04, evidence="median of 200 steps"
)


def stored(control_plane: ControlPlane, name: str = "p", **options: float) -> int:
    return control_plane.profiles.add(measured_profile(name, **options), origin="measured").profile_id


def in_force(control_plane: ControlPlane) -> Predictors:
    predictors = control_plane.snapshot().engine_settings("auto").predictors
    assert predictors is not None
    return predictors


def test_a_profile_is_a_new_version_of_its_name_when_stored(control_plane: ControlPlane) -> None:
    stored(control_plane)
    stored(control_plane, "other")
    second = control_plane.profiles.get(stored(control_plane))
    assert (second.version, second.is_active, second.frozen) == (2, False, False)
    assert [one.name for one in control_plane.profiles.newest_first()] == ["p", "other", "p"]
    assert control_plane.profiles.whole(second.profile_id) == measured_profile()


def test_the_engine_is_told_at_once_when_a_profile_is_activated(control_plane: ControlPlane) -> None:
    heard: list[DirectorySnapshot] = []
    profile_id = stored(control_plane)
    control_plane.subscribe(heard.append)
    assert control_plane.snapshot().predictors is None
    control_plane.profiles.activate(profile_id, greeting_of())
    assert len(heard) == 1
    told = heard[0].engine_settings("auto").predictors
    assert told is not None
    assert told == measured_profile().predictors(profile_id)
    control_plane.profiles.deactivate()
    assert heard[1].engine_settings("auto").predictors is None


def test_another_engines_profile_is_refused_with_the_difference_when_activated(
    control_plane: ControlPlane,
) -> None:
    profile_id = stored(control_plane)
    ours = greeting_of()
    for hello, difference in (
        (greeting_of("h100-qwen3-8b"), "it is of a NVIDIA H200, the engine runs on a NVIDIA H100"),
        (greeting_of("h200-codellama-34b"), "the engine serves m, which is"),
        (msgspec.structs.replace(ours, total_sms=114), "it is of 132 SMs, the engine has 114"),
        (
            msgspec.structs.replace(ours, tensor_parallel=TensorParallel(gpus=2)),
            "it is of a model on 1 GPU, the engine spreads its model over 2",
        ),
    ):
        with pytest.raises(ConflictError, match=difference):
            control_plane.profiles.activate(profile_id, hello, force=True)
    assert control_plane.profiles.active() is None


def test_a_profile_is_refused_unless_forced_when_it_lacks_sm_counts(control_plane: ControlPlane) -> None:
    profile_id = stored(control_plane)
    hello = greeting_of(policy="static:72,60")
    with pytest.raises(ConflictError, match="it has nothing on 60, 72 SMs"):
        control_plane.profiles.activate(profile_id, hello)
    assert control_plane.profiles.activate(profile_id, hello, force=True).is_active


def test_an_inaccurate_profile_is_refused_unless_forced_when_activated(control_plane: ControlPlane) -> None:
    profile_id = stored(control_plane, p90=0.17)
    with pytest.raises(ConflictError, match=r"prefill on 132 SMs has a p90 error of 17\.0%"):
        control_plane.profiles.activate(profile_id, greeting_of())
    assert control_plane.profiles.activate(profile_id, greeting_of(), force=True).is_active


def test_the_profile_before_is_in_force_again_when_rolled_back(control_plane: ControlPlane) -> None:
    first, second = stored(control_plane), stored(control_plane)
    control_plane.profiles.activate(first, None)
    control_plane.profiles.activate(second, None)
    back = control_plane.profiles.roll_back(None)
    assert back is not None
    assert back.profile_id == first
    assert in_force(control_plane).profile_id == first
    assert control_plane.profiles.roll_back(None) is None
    assert control_plane.snapshot().predictors is None
    with pytest.raises(NotFoundError, match="none to go back to"):
        control_plane.profiles.roll_back(None)


def test_what_was_learned_is_told_and_survives_when_the_store_is_opened_again(
    control_plane: ControlPlane, url: str
) -> None:
    profile_id = stored(control_plane)
    control_plane.profiles.activate(profile_id, None)
    control_plane.profiles.learn(profile_id, [RAISED, SLOWER])
    with opened(url, FakeClock()) as again:
        told = in_force(again)
        assert dict(told.guard_cells)[CELL] == 1.35
        assert told.corrections == (Correction(sms=36, decode_ratio=1.04),)
        kept = again.profiles.changes(profile_id)
        assert [(one.kind, one.subject, one.before, one.after) for one in kept] == [
            ("corrected", "decode 36", 1.0, 1.04),
            ("raised", "36-2-0-5-3", 1.2, 1.35),
        ]
        assert kept[1].evidence == RAISED.evidence


@pytest.mark.parametrize("predictor", ["prefill", "decode", "fused"])
def test_the_engine_is_told_the_correction_when_a_predictor_was_corrected(
    control_plane: ControlPlane, predictor: Predictor
) -> None:
    profile_id = stored(control_plane)
    control_plane.profiles.activate(profile_id, None)
    control_plane.profiles.learn(profile_id, [replace(SLOWER, predictor=predictor, sms=132)])
    (told,) = in_force(control_plane).corrections
    assert told == msgspec.structs.replace(Correction(sms=132), **{f"{predictor}_ratio": SLOWER.after})


def test_nothing_is_learned_when_the_profile_is_frozen_or_replaced(control_plane: ControlPlane) -> None:
    profile_id, other = stored(control_plane), stored(control_plane)
    control_plane.profiles.activate(profile_id, None)
    control_plane.profiles.set_frozen(profile_id, True)
    assert in_force(control_plane).guard_frozen
    control_plane.profiles.learn(profile_id, [RAISED])
    assert control_plane.profiles.learned(profile_id).cells == {}
    control_plane.profiles.set_frozen(profile_id, False)
    control_plane.profiles.activate(other, None)
    control_plane.profiles.learn(profile_id, [RAISED])
    assert control_plane.profiles.learned(profile_id).cells == {}
    kinds = [one.kind for one in control_plane.profiles.changes(profile_id)]
    assert kinds == ["thawed", "frozen"]


def test_the_measured_bound_holds_again_when_a_cell_is_reset(control_plane: ControlPlane) -> None:
    profile_id = stored(control_plane)
    control_plane.profiles.activate(profile_id, None)
    control_plane.profiles.learn(profile_id, [RAISED, SLOWER])
    control_plane.profiles.reset_cell(profile_id, CELL)
    assert dict(in_force(control_plane).guard_cells)[CELL] == 1.2
    assert len(in_force(control_plane).corrections) == 1
    with pytest.raises(NotFoundError, match="nothing was learned of guard cell 36-2-0-5-3"):
        control_plane.profiles.reset_cell(profile_id, CELL)
    control_plane.profiles.reset(profile_id)
    assert in_force(control_plane).corrections == ()


def test_a_name_is_refused_when_it_cannot_be_shown(control_plane: ControlPlane) -> None:
    with pytest.raises(InvalidValueError, match="1 to 63 printable"):
        stored(control_plane, "a\nb")
