"""`pdmuxd support-bundle`: one archive for whoever helps, without secrets."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import typer

from pdmuxd.daemon.cli.admin_client import AdminClient, running_daemon
from pdmuxd.daemon.cli.output import AsJson, print_json
from pdmuxd.engine.core.errors import PdmuxdError

_EPILOG = "Example: pdmuxd support-bundle\n\nLook into it before you send it: tar tzf FILE"
_TIMEOUT_S = 20.0
_UNIT = "pdmuxd.service"
_LINES = "5000"


def register(app: typer.Typer) -> None:
    """Add the `support-bundle` command."""
    app.command("support-bundle", epilog=_EPILOG)(support_bundle)


def support_bundle(
    ctx: typer.Context,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Ends in .tar.gz. [default: named after the time, here]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Collect versions, settings, decisions, metrics and logs into one archive, without secrets.

    Works with a daemon that runs, hangs or is stopped: what cannot be had is named in missing.txt. Names of
    tenants and models are in it; prompts and answers are not, unless the engine was told to log them.
    """
    from pdmuxd.daemon.doctor.support_bundle import Bundle, daemon_parts, local_parts, secrets_of

    target = path or Path(f"pdmuxd-support-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    bundle = Bundle(secrets_of(ctx.obj, os.environ))
    local_parts(bundle, ctx.obj)
    bundle.add("doctor.json", lambda: _findings(ctx))
    bundle.add("logs/daemon.log", _journal)
    try:
        with running_daemon(ctx) as client:
            if client is None:
                bundle.missing["daemon/"] = "no daemon runs on this state directory"
            else:
                daemon_parts(bundle, partial(client.request, "GET"), lambda: _metrics(client))
    except PdmuxdError as error:
        bundle.missing["daemon/"] = bundle.masked(str(error))
    files = bundle.write(target)
    if as_json:
        print_json({"bundle": str(target), "files": files, "missing": bundle.missing})
        return
    typer.echo(f"{target}: {files} files")
    for name, why in bundle.missing.items():
        typer.echo(f"without {name}: {why}", err=True)


def _findings(ctx: typer.Context) -> object:
    from pdmuxd.daemon.doctor.probes import Probes
    from pdmuxd.daemon.doctor.run import examine

    return [dataclasses.asdict(finding) for finding in examine(ctx.obj, Probes())]


def _metrics(client: AdminClient) -> str:
    try:
        answer = httpx.get(f"{client.where}/metrics", timeout=_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        raise PdmuxdError(f"no answer: {error}") from error
    return answer.text


def _journal() -> str:
    """The daemon's own log, where systemd keeps it."""
    program = shutil.which("journalctl")
    if program is None:
        raise PdmuxdError("there is no journalctl here; add what the daemon printed on standard error")
    command = [program, "--unit", _UNIT, "--lines", _LINES, "--no-pager", "--output", "short-iso"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise PdmuxdError("journalctl did not answer in time") from None
    if done.returncode:
        raise PdmuxdError(f"journalctl failed: {done.stderr.strip()[:200]}")
    return done.stdout
