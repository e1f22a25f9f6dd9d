"""`pdmuxd monitoring`: what Prometheus and Grafana need to watch the daemon."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from pdmuxd.daemon.cli.admin_address import origin_of, settings_of
from pdmuxd.daemon.cli.output import AsJson, print_json
from pdmuxd.engine.core.errors import InvalidValueError

_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_PAGE = re.compile(r"https?://[^\s#\"'\\]+")
_EPILOG = "Example: pdmuxd monitoring --target gpu1:8081 --target gpu2:8081 monitoring/"


def register(app: typer.Typer) -> None:
    """Add the `monitoring` command."""
    app.command("monitoring", epilog=_EPILOG)(monitoring)


def monitoring(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Made if it is not there.")],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="HOST:PORT", help="An admin address to scrape. [default: the settings']"
        ),
    ] = None,
    runbook_url: Annotated[
        str | None,
        typer.Option(
            "--runbook-url",
            metavar="URL",
            help="Where docs/alerts.md is published: alerts then have an absolute runbook_url.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write rules, alerts, a Grafana dashboard and configurations of both into FOLDER."""
    from pdmuxd.daemon.monitoring.files import write

    targets = tuple(target or [origin_of(settings_of(ctx).admin).removeprefix("http://")])
    for each in targets:
        found = _TARGET.fullmatch(each)
        if found is None or not 0 < int(found[2]) <= 65535:
            raise InvalidValueError(
                "target", f"--target is {each[:80]!r}; allowed is an admin address such as 127.0.0.1:8081"
            )
    if runbook_url is not None and _PAGE.fullmatch(runbook_url) is None:
        raise InvalidValueError(
            "runbook_url",
            f"--runbook-url is {runbook_url[:80]!a}; allowed is the address of a page, such as "
            "https://docs.example.com/pdmuxd/alerts.html",
        )
    written = write(folder, targets=targets, runbook_url=runbook_url)
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        typer.echo(path)
    typer.echo(
        f"Then: cd {folder} && prometheus --config.file=prometheus.yml, or docker compose up", err=True
    )
