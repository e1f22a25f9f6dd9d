"""Configuration files: read, checked line by line, sent, and what came of it told."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.controlplane.api.config_bodies import ConfigError, read_config
from pdmuxd.daemon.cli.admin_client import AdminClient
from pdmuxd.daemon.cli.outlook import print_outlook
from pdmuxd.daemon.cli.yaml_documents import MOST_BYTES, Whole, read_documents
from pdmuxd.engine.core.errors import InvalidValueError

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

STANDARD_INPUT = "-"
TIMEOUT_S = 120.0
"""A thousand tenants take a second; the database may be busy for ten."""
_SIGNS = {"create": "+", "change": "~", "delete": "-"}

Files = Annotated[
    list[str] | None,
    typer.Option("-f", "--file", metavar="FILE", help="YAML to read, - for standard input. May be repeated."),
]
Prune = Annotated[bool, typer.Option("--prune", help="Delete the tenants that the files do not name.")]


def read_files(files: Sequence[str] | None) -> Whole:
    """One configuration of all files. Raises: InvalidValueError naming each line that is wrong."""
    if not files:
        raise typer.BadParameter("give at least one -f FILE, or -f - to read standard input")
    whole = Whole(document for name in files for document in read_documents(_bytes(name), _shown(name)))
    try:
        read_config(whole.value)
    except ConfigError as error:
        raise _located(error, whole) from None
    return whole


def send(
    client: AdminClient,
    whole: Whole,
    *,
    prune: bool,
    dry_run: bool = False,
    force: bool = False,
    if_match: int | None = None,
) -> models.ConfigAppliedOut:
    """Put the configuration in force, or only ask what that would change. Raises: PdmuxdError."""
    try:
        return client.put_config(
            cast("models.ConfigIn", whole.value),
            prune=prune,
            dry_run=dry_run,
            force=force,
            if_match=if_match,
            timeout_s=TIMEOUT_S,
        )
    except InvalidValueError as error:
        # What only the daemon knows, such as which splits its device can make.
        place = whole.where(tuple(error.field.split(".")))
        raise InvalidValueError(error.field, f"{place}: {error}" if place else str(error)) from error


def print_changes(answer: Mapping[str, Any]) -> None:
    """What differs, a line each, and what is predicted of it."""
    for one in answer["changes"]:
        typer.echo(f"{_SIGNS[one['action']]} {one['text']}")
    if answer["unmanaged"]:
        names = ", ".join(answer["unmanaged_names"][:10])
        more = answer["unmanaged"] - len(answer["unmanaged_names"][:10])
        and_more = f" and {more} more" if more > 0 else ""
        typer.echo(f"not named, so left as they are: {names}{and_more} (--prune deletes them)")
    if answer["outlook"] is not None:
        print_outlook(answer["outlook"])


def _bytes(name: str) -> bytes:
    """Read at most a byte more than may be read, so that what is too long costs nothing."""
    if name == STANDARD_INPUT:
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    try:
        with Path(name).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidValueError("file", f"cannot read {name}: {said}") from error


def _shown(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name


def _located(error: ConfigError, whole: Whole) -> InvalidValueError:
    """The first fault as the error, the others before it."""
    told = [f"{whole.where(one.path) or 'the files'}: {one}" for one in error.faults]
    for text in told[:-1]:
        typer.echo(text, err=True)
    return InvalidValueError(error.field, f"{told[-1]}; nothing was changed")
