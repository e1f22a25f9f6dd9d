"""`pdmuxd profile export`, `import` and `report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.output import AsJson, print_json
from pdmuxd.daemon.cli.profile_format import ProfileId, print_profile
from pdmuxd.engine.core.errors import InvalidValueError

app = typer.Typer()


@app.command(epilog="Example: pdmuxd profile export 3 profile.json")
def export(
    ctx: typer.Context,
    profile_id: ProfileId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; must not exist.")],
    format_: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="`profile` for import, `emulator` to emulate it."),
    ] = "profile",
) -> None:
    """Write a profile to a file, whole or as one that the emulated engine runs by."""
    if format_ not in ("profile", "emulator"):
        raise InvalidValueError("--format", f"--format is {format_!r}; allowed are profile, emulator")
    with admin_client(ctx) as client:
        document = client.export_profile(profile_id)
    if format_ == "emulator":
        from pdmuxd.daemon.profiling.emulated import emulator_profile_json

        text = emulator_profile_json(document)
    else:
        text = json.dumps(document, indent=1) + "\n"
    _write(file, text)


@app.command("import", epilog="Example: pdmuxd profile import profile.json")
def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As `pdmuxd profile export` wrote it.")],
    as_json: AsJson = False,
) -> None:
    """Store an exported profile as a new version of its name. It is not in force yet."""
    from pdmuxd.engine.profiling.document import read_file, to_json

    document = json.loads(to_json(read_file(file)))
    with admin_client(ctx) as client:
        profile = client.import_profile(document)
    if as_json:
        print_json(profile)
    else:
        print_profile(profile)


@app.command(epilog="Example: pdmuxd profile report 3 profile.html")
def report(
    ctx: typer.Context,
    profile_id: ProfileId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; must not exist.")],
) -> None:
    """Write one HTML page: measured against predicted, the guard, and where to measure next."""
    from pdmuxd.daemon.profiling.report.page import report_page

    with admin_client(ctx) as client:
        document = client.export_profile(profile_id)
        learned = client.get_profile_learned(profile_id)
    _write(file, report_page(document, learned))


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x") as target:
            target.write(text)
    except OSError as error:
        raise InvalidValueError("FILE", f"{file}: cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {file}")
