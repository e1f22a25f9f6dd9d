"""`pdmuxd doctor`: a verdict on everything that the daemon needs."""

from __future__ import annotations

import dataclasses
import json
import sys
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
    host: Annotated[
        bool,
        typer.Option(
            "--host",
            help="Measure what rate of tokens this host carries, too: 10 s at most, with all of two cores.",
        ),
    ] = False,
) -> None:
    """Check this machine and installation: one verdict a line; the exit code is 1 if one is `fail`.

    Nothing is changed, and without --host a running daemon is not disturbed.
    """
    from pdmuxd.daemon.doctor.findings import Verdict, worst
    from pdmuxd.daemon.doctor.probes import Probes
    from pdmuxd.daemon.doctor.run import examine

    findings = []
    for finding in examine(ctx.obj, Probes(), model):
        findings.append(finding)
        if not as_json:
            _print(finding)
    if host:
        finding = _measured()
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        typer.echo(json.dumps({"verdict": worst(findings), "findings": listed}, indent=2))
    if worst(findings) is Verdict.FAIL:
        raise typer.Exit(1)


def _measured() -> Finding:
    import uvloop  # as the daemon's own loop

    from pdmuxd.daemon.doctor.host_rate import check_host, measure_host

    is_shown = sys.stderr.isatty()

    def progress(text: str) -> None:
        if is_shown:
            typer.echo(f"\r\x1b[Kmeasuring the host: {text}", nl=False, err=True)

    try:
        progress("it begins")
        return check_host(uvloop.run(measure_host(progress)))
    finally:
        if is_shown:
            typer.echo("\r\x1b[K", nl=False, err=True)


def _print(finding: Finding) -> None:
    typer.echo(f"{finding.verdict:4}  {finding.check:15}  {finding.detail}")
    if finding.hint:
        typer.echo(f"{'':4}  {'':15}  -> {finding.hint}")
