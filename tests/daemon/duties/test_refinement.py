"""The daemon's part of refinement: what is observed, stored, told and kept over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from profiling import decode_record, greeting_of, measured_profile
from stores import new_database, opened
from structlog.testing import capture_logs

from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineStatus
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.duties.refinement import Refinement
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.messages import EngineStats, IterationRecord
from pdmuxd.engine.link.predictors import Predictors, latency_model

BATCH = DecodeShape(bs=8, reused_tokens=8000)
PREFILL = PrefillShape.of([(4000, 0)])


class Daemon:
    """A control plane with an engine that predicts with a profile, and a clock."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane
        self.now_s = 0.0
        self.at_bound: list[tuple[str, ...]] = []
        self.status: EngineStatus = NO_ENGINE
        self.refinement = Refinement(
            control_plane,
            status=lambda: self.status,
            clock=lambda: self.now_s,
            at_bound=self.at_bound.append,
        )
        control_plane.subscribe(self.refinement.use)
        self.refinement.use(control_plane.snapshot())

    def greet(self, profile: str = "h200-llama-8b", *, profile_id: int = 0) -> None:
        self.status = replace(
            self.status, state="serving", hello=greeting_of(profile), stats=stats(profile_id)
        )
        assert self.status.hello is not None
        self.refinement.on_hello(self.status.hello)

    def step(self, ratio: float) -> None:
        predictors = self.control_plane.snapshot().predictors
        assert predictors is not None
        self.refinement.on_iteration(step_of(predictors, ratio))


def stats(profile_id: int) -> EngineStats:
    names = [
        name
        for name in EngineStats.__struct_fields__
        if name not in ("policy", "profile_id", "shadow", "hidden")
    ]
    return EngineStats(policy="auto", profile_id=profile_id, **dict.fromkeys(names, 0))


def step_of(predictors: Predictors, ratio: float) -> IterationRecord:
    hello = greeting_of()
    assert hello.roofline is not None
    model = latency_model(predictors, hello.roofline)
    return decode_record(BATCH, PREFILL, alone_s=model.decode_s(BATCH, 36), ratio=ratio)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_database(tmp_path)


@pytest.fixture
def daemon(url: str) -> Iterator[Daemon]:
    with opened(url) as control_plane:
        yield Daemon(control_plane)


def activated(daemon: Daemon) -> int:
    profile_id = daemon.control_plane.profiles.add(measured_profile(), origin="measured").profile_id
    daemon.control_plane.profiles.activate(profile_id, None)
    daemon.greet(profile_id=profile_id)
    return profile_id


async def test_a_slow_step_is_stored_and_holds_after_a_restart_when_it_exceeds_its_bound(
    daemon: Daemon, url: str
) -> None:
    profile_id = activated(daemon)
    daemon.step(1.5)
    await daemon.refinement.store()
    (cell,) = daemon.control_plane.profiles.learned(profile_id).cells
    assert daemon.control_plane.profiles.learned(profile_id).cells[cell] == pytest.approx(1.5)
    with opened(url) as control_plane:
        again = Daemon(control_plane)
        again.greet(profile_id=profile_id)
        again.step(1.45)
        await again.refinement.store()
        assert control_plane.profiles.learned(profile_id).cells[cell] == pytest.approx(1.5)
        again.step(1.6)
        await again.refinement.store()
        changes = control_plane.profiles.changes(profile_id)
        assert [(round(one.before, 3), round(one.after, 3)) for one in changes] == [(1.5, 1.6), (1.1, 1.5)]


async def test_nothing_is_learned_when_the_engine_predicts_with_something_else(daemon: Daemon) -> None:
    profile_id = activated(daemon)
    daemon.greet(profile_id=profile_id + 1)
    daemon.step(1.5)
    daemon.greet("h100-qwen3-8b", profile_id=profile_id)
    daemon.step(1.5)
    await daemon.refinement.store()
    assert daemon.control_plane.profiles.learned(profile_id).cells == {}


async def test_nothing_is_learned_when_frozen_and_again_when_thawed(daemon: Daemon) -> None:
    profile_id = activated(daemon)
    daemon.control_plane.profiles.set_frozen(profile_id, True)
    daemon.step(1.5)
    await daemon.refinement.store()
    assert daemon.control_plane.profiles.learned(profile_id).cells == {}
    daemon.control_plane.profiles.set_frozen(profile_id, False)
    daemon.step(1.5)
    await daemon.refinement.store()
    assert len(daemon.control_plane.profiles.learned(profile_id).cells) == 1


async def test_an_alarm_is_due_when_a_correction_is_at_its_bound(daemon: Daemon) -> None:
    activated(daemon)
    for _ in range(12):
        daemon.now_s += 10.0
        predictors = daemon.control_plane.snapshot().predictors
        assert predictors is not None
        uncorrected = msgspec.structs.replace(predictors, corrections=())
        for _ in range(60):
            daemon.refinement.on_iteration(step_of(uncorrected, 1.6))
        await daemon.refinement.store()
    assert daemon.at_bound[0] == ()
    assert daemon.at_bound[-1] == ("decode on 36 SMs",)


def test_the_log_says_so_when_no_profile_is_active(daemon: Daemon) -> None:
    with capture_logs() as logs:
        daemon.refinement.on_hello(msgspec.structs.replace(greeting_of(), engine="sglang"))
    (line,) = [one for one in logs if "no profile is active" in one["event"]]
    assert line["own"] == "h200-llama-8b"


def test_the_log_says_nothing_when_the_engine_is_emulated_and_its_own_profile_is_the_truth(
    daemon: Daemon,
) -> None:
    with capture_logs() as logs:
        daemon.greet()
    assert not [one for one in logs if "no profile is active" in one["event"]]
