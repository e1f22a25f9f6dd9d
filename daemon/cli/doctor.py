"""`pdmuxd doctor`: a verdict on everything that the daemon needs."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdmuxd.daemon.doctor.findings import Finding

EPILOG = "Example: pdmuxd --config /etc/pdmuxd/pdmuxd.toml doctor --json"


def register(app: typer.Typer) -> None:
    """Add the `doctor` command."""
    app.command("doctor", epilog=EPILOG)(doctor)


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="Say how this model would be served (default: engine.sglang.model).",
        ),
    ] = None,
) -> None:
    """Check this machine and installation: one verdict a line; the exit code is 1 if one is `fail`.

    Nothing is changed, and a running daemon is not disturbed.
    """
    from pdmuxd.daemon.doctor.findings import Verdict, worst
    from pdmuxd.daemon.doctor.probes import Probes
    from pdmuxd.daemon.doctor.run import examine

    findings = []
    for finding in examine(ctx.obj, Probes(), model):
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        typer.echo(json.dumps({"verdict": worst(findings), "findings": listed}, indent=2))
    if worst(findings) is Verdict.FAIL:
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    typer.echo(f"{finding.verdict:4}  {finding.check:15}  {finding.detail}")
    if finding.hint:
        typer.echo(f"{'':4}  {'':15}  -> {finding.hint}")
