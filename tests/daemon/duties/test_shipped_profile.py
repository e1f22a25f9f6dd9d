"""A shipped profile serves until an operator chooses another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from profiling import greeting_of, measured_profile
from stores import new_database, opened

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.duties.shipped_profile import StandIn
from pdmuxd.daemon.profiling.report.page import report_page
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.document import to_json
from pdmuxd.engine.profiling.shipped_profiles import shipped_profiles

(LLAMA,) = [one for one in shipped_profiles() if one.name == "h200-llama-8b"]
GREETING = msgspec.structs.replace(
    greeting_of(),
    engine="sglang",
    profile="roofline",
    device=LLAMA.provenance.device,
    total_sms=LLAMA.total_sms,
    partitions=LLAMA.partitions,
    model_shape=LLAMA.model,
    tensor_parallel=LLAMA.tensor_parallel,
    model_hash="of-its-own",
)


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with opened(new_database(tmp_path)) as opened_one:
        yield opened_one


async def greeted(control_plane: ControlPlane, *hellos: Hello, is_wanted: bool = True) -> None:
    stand_in = StandIn(control_plane, is_wanted=is_wanted)
    for hello in hellos:
        stand_in.on_hello(hello)
    await stand_in.settle()


async def test_it_is_in_force_when_none_ever_was_and_the_audit_says_who_did_it(
    control_plane: ControlPlane,
) -> None:
    await greeted(control_plane, GREETING)
    active = control_plane.profiles.active()
    assert active is not None
    assert (active.name, active.origin) == ("h200-llama-8b", "shipped")
    predictors = control_plane.snapshot().predictors
    assert predictors is not None
    assert predictors.model_hash == GREETING.model_hash
    assert [(one.action, one.who_kind) for one in control_plane.audit(limit=10)] == [
        ("profile.activation", "daemon"),
        ("profile.add", "daemon"),
    ]


async def test_who_waits_for_engines_serves_each_that_comes(control_plane: ControlPlane) -> None:
    stand_in, in_force = StandIn(control_plane, is_wanted=True), asyncio.Event()
    loop = asyncio.get_running_loop()
    control_plane.subscribe(lambda _: loop.call_soon_threadsafe(in_force.set))
    waiting = asyncio.create_task(stand_in.wait())
    await asyncio.sleep(0)
    stand_in.on_hello(msgspec.structs.replace(GREETING, variant="weights in fp8"))
    stand_in.on_hello(GREETING)
    await in_force.wait()
    waiting.cancel()
    assert control_plane.profiles.active() is not None


async def test_its_report_is_drawn_without_samples(control_plane: ControlPlane) -> None:
    document = msgspec.json.decode(to_json(LLAMA))
    assert "h200-llama-8b" in report_page(document, {"cells": [], "corrections": [], "changes": []})


async def test_it_is_stored_once_when_engines_come_again(control_plane: ControlPlane) -> None:
    await greeted(control_plane, GREETING)
    await greeted(control_plane, GREETING)
    assert len(control_plane.profiles.newest_first()) == 1


def deactivate(control_plane: ControlPlane) -> None:
    control_plane.profiles.deactivate()


def roll_back(control_plane: ControlPlane) -> None:
    control_plane.profiles.roll_back(None)


@pytest.mark.parametrize("undo", [deactivate, roll_back])
async def test_it_stays_out_of_force_when_an_operator_did_away_with_it(
    control_plane: ControlPlane, undo: Callable[[ControlPlane], None]
) -> None:
    await greeted(control_plane, GREETING)
    undo(control_plane)
    await greeted(control_plane, GREETING)
    assert control_plane.profiles.active() is None


async def test_a_profile_of_the_operators_is_left_in_force(control_plane: ControlPlane) -> None:
    own = control_plane.profiles.add(measured_profile(), origin="measured")
    control_plane.profiles.activate(own.profile_id, None)
    await greeted(control_plane, GREETING)
    active = control_plane.profiles.active()
    assert active is not None
    assert active.profile_id == own.profile_id


@pytest.mark.parametrize(
    "hello", [greeting_of(), msgspec.structs.replace(GREETING, variant="weights in fp8")]
)
async def test_nothing_is_put_in_force_when_none_fits(control_plane: ControlPlane, hello: Hello) -> None:
    await greeted(control_plane, hello)
    assert control_plane.profiles.newest_first() == []


async def test_nothing_is_put_in_force_when_it_is_switched_off(control_plane: ControlPlane) -> None:
    await greeted(control_plane, GREETING, is_wanted=False)
    assert control_plane.profiles.newest_first() == []


async def test_a_store_that_fails_is_a_warning_and_the_next_engine_is_served(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pdmuxd.engine.core.errors import StoreError

    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(control_plane.profiles, "stand_in", fail)
        await greeted(control_plane, GREETING)
    await greeted(control_plane, GREETING)
    assert control_plane.profiles.active() is not None
