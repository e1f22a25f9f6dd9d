"""The engine on the command line: flags that stand for settings, of `serve` and `profile run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from pdmuxd.daemon.cli import completing

if TYPE_CHECKING:
    from pdmuxd.daemon.settings.load import LoadedSettings

ENGINE = typer.Option(
    "--engine", metavar="KIND", help="Same as --set engine.kind=KIND.", autocompletion=completing.engine_kinds
)
MODEL = typer.Option("--model", metavar="PATH", help="Same as --set engine.sglang.model=PATH.")


def read_settings(ctx: typer.Context, flags: Mapping[str, str | None]) -> LoadedSettings:
    """The settings with a command's own flags, by key, above those of the root command.

    Raises: SettingsError.
    """
    from pdmuxd.daemon.settings import load_settings
    from pdmuxd.daemon.settings.layers import parse_assignments

    root = ctx.find_root().params
    overrides = parse_assignments(root.get("assignments") or ())
    overrides["log.level"] = root.get("log_level") or overrides.get("log.level")
    given = {key: value for key, value in flags.items() if value is not None}
    return load_settings(root.get("config"), {**overrides, **given})
