"""`pdmuxd profile run`: start the configured engine, measure it, keep the profile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import typer
import uvloop
from rich.console import Console

from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.profiles.values import StoredProfile
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.process.lock import exclusive
from pdmuxd.daemon.process.signals import stop_requests
from pdmuxd.daemon.profiling.check import check, told_of_unseen
from pdmuxd.daemon.profiling.engine import MeasuringEngine, measuring_engine
from pdmuxd.daemon.profiling.journal import NOTHING, Journal, journal_path, read_journal
from pdmuxd.daemon.profiling.progress import CampaignProgress
from pdmuxd.daemon.profiling.run import Outcome, now_text, run_campaign
from pdmuxd.daemon.settings import Settings
from pdmuxd.daemon.settings.places import make_private
from pdmuxd.daemon.supervisor.choice import choose_engine, has_gpu
from pdmuxd.daemon.supervisor.plan import EnginePlan
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, ProfileError, SettingsError
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.document import MeasuredProfile, to_json
from pdmuxd.engine.profiling.gate import doubts
from pdmuxd.engine.profiling.measurement import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asked for."""

    budget_s: float
    name: str | None
    output: Path | None
    """Write the profile here instead of storing it."""
    activate: bool
    force: bool
    check: Path | None
    """Measure unseen shapes behind the campaign, and keep them in this file."""
    fresh: bool
    """Do not go on from what an earlier campaign has left."""


def profile_engine(settings: Settings, wanted: Wanted) -> bool:
    """Measure, keep and show; whether measuring was broken off.

    Raises: SettingsError if a daemon holds the state directory, or there is a GPU and no model is named;
    StoreError before anything is measured if there is no database to keep the profile in; EngineError,
    ProfileError.
    """
    for option, path in (("--output", wanted.output), ("--check", wanted.check)):
        if path is not None and path.exists():
            raise InvalidValueError(option, f"{option}: {path} exists; name another file")
        if path is not None and not path.parent.is_dir():
            raise InvalidValueError(option, f"{option}: there is no folder {path.parent}")
    if settings.engine.kind == "auto" and settings.engine.sglang.model is None and has_gpu():
        raise SettingsError(
            "engine.sglang.model is unset, so that the emulated GPU would be measured: give --model PATH, "
            "as serve has it, or --engine emulator"
        )
    choice = choose_engine(settings.engine, settings.resolved_state_dir)
    make_private(settings.resolved_state_dir)
    make_private(settings.resolved_runtime_dir)
    plan = EnginePlan(
        command=choice.command,
        state_dir=settings.resolved_state_dir,
        runtime_dir=settings.resolved_runtime_dir,
        start_timeout_s=choice.start_timeout_s,
        backoff_initial_s=settings.engine.restart_backoff_initial_s,
        backoff_max_s=settings.engine.restart_backoff_max_s,
    )
    with exclusive(settings.resolved_state_dir), _store(settings, wanted) as control_plane:
        typer.echo(f"measuring {choice.described} for at most {wanted.budget_s:g} s", err=True)
        outcome, hello, journal = uvloop.run(_measure(plan, wanted))
        _say(outcome)
        stored = _keep(control_plane, outcome.profile, wanted)
        if outcome.broken_off is None:
            journal.remove()
        else:
            typer.echo(
                f"{len(outcome.profile.samples)} points are kept, and the next run continues from them"
            )
        if control_plane is not None and stored is not None:
            _activate(control_plane, stored, hello, wanted)
    return outcome.broken_off is not None


@contextlib.contextmanager
def _store(settings: Settings, wanted: Wanted) -> Iterator[ControlPlane | None]:
    """Where the profile goes. Opened before the engine starts, so that minutes of measuring are not lost."""
    if wanted.output is not None:
        yield None
        return
    engine = open_database(settings.resolved_database_url)
    try:
        yield ControlPlane(engine)
    finally:
        engine.dispose()


async def _measure(plan: EnginePlan, wanted: Wanted) -> tuple[Outcome, Hello, Journal]:
    console = Console(stderr=True)
    with stop_requests() as requests:
        async with measuring_engine(plan) as engine:
            target = Target.of(await engine.hello(plan.start_timeout_s))
            journal = _journal(plan.state_dir, target.hello, wanted)
            with journal, CampaignProgress(console=console, shown=console.is_terminal) as progress:
                outcome = await run_campaign(
                    engine,
                    target,
                    name=wanted.name or target.hello.model,
                    budget_s=wanted.budget_s,
                    stop=requests.stop,
                    tell=progress.update,
                    journal=journal,
                )
            if wanted.check is not None and outcome.broken_off is None:
                await _check(engine, target, outcome.profile, wanted, wanted.check)
    return outcome, target.hello, journal


async def _check(
    engine: MeasuringEngine, target: Target, profile: MeasuredProfile, wanted: Wanted, path: Path
) -> None:
    seen = {sample.point for sample in profile.samples}
    samples = await check(engine, target, seen, CHECK_SHARE * wanted.budget_s)
    try:
        await asyncio.to_thread(path.write_bytes, msgspec.json.encode(samples))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written: {error.strerror}") from error
    for line in told_of_unseen(profile, samples, is_forced=wanted.activate and wanted.force):
        typer.echo(line)


CHECK_SHARE = 0.1
"""Of the budget, how long unseen shapes are measured beside it."""


def _journal(folder: Path, hello: Hello, wanted: Wanted) -> Journal:
    """Raises: ProfileError."""
    path = journal_path(folder, hello)
    earlier = NOTHING if wanted.fresh else read_journal(path)
    if earlier.samples:
        points = len({sample.point for sample in earlier.samples})
        began = earlier.began_at.replace("T", " ").removesuffix("Z")
        typer.echo(
            f"going on from {points} points of {began} UTC, which took {earlier.spent_s:.0f} s of "
            "the budget; with --fresh all is measured again",
            err=True,
        )
    return Journal(path=path, earlier=earlier, now=now_text())


def _say(outcome: Outcome) -> None:
    profile = outcome.profile
    if outcome.broken_off is not None:
        typer.echo(f"measuring ended early: {outcome.broken_off}", err=True)
    if outcome.refused:
        typer.echo(f"the engine refused {outcome.refused} points", err=True)
    for one in profile.left_out:
        typer.echo(f"left out: {one}", err=True)
    typer.echo(
        f"{len(profile.samples)} samples were measured in {profile.provenance.took_s:.0f} s; the least "
        f"accurate predictor is off by {profile.worst_p90:.1%} at p90, on samples kept for checking"
    )
    for doubt in doubts(profile):
        typer.echo(f"doubtful: {doubt.text}")
    if profile.guard is not None:
        guard = profile.guard
        typer.echo(
            f"contention guard: measured on {guard.pairs} pairs of prefill and decode; of the pairs kept for "
            f"checking {guard.exceeded_ratio:.1%} were slower than its bound, which lies "
            f"{guard.overestimate_ratio:.0%} above what was measured, on average"
        )


def _keep(
    control_plane: ControlPlane | None, profile: MeasuredProfile, wanted: Wanted
) -> StoredProfile | None:
    """Keep a profile in the database, or in the file that was asked for. Raises: ProfileError, StoreError."""
    if control_plane is not None:
        stored = control_plane.profiles.add(profile, origin="measured")
        typer.echo(f"stored as {_title(stored)}")
        return stored
    if wanted.output is not None:
        try:
            wanted.output.write_bytes(to_json(profile) + b"\n")
        except OSError as error:
            raise ProfileError(f"{wanted.output}: cannot be written: {error.strerror}") from error
        typer.echo(f"wrote {wanted.output}")
    return None


def _activate(control_plane: ControlPlane, stored: StoredProfile, hello: Hello, wanted: Wanted) -> None:
    if not wanted.activate:
        typer.echo(f"to put it in force: pdmuxd profile activate {stored.profile_id}")
        return
    try:
        control_plane.profiles.activate(stored.profile_id, hello, force=wanted.force)
    except ConflictError as error:
        raise ProfileError(f"{_title(stored)} is stored but not in force: {error}") from error
    typer.echo("it is in force from the next start of the daemon on")


def _title(stored: StoredProfile) -> str:
    return f"profile {stored.profile_id} ({stored.name}, version {stored.version})"
