"""A command group whose commands are imported when they are run, so that `--help` is quick."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import typer
from typer.core import CompletionItem, TyperCommand, TyperGroup  # type: ignore[attr-defined]
from typer.main import get_command, get_group

Command = TyperCommand | TyperGroup


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is found, and what the list of commands says of it."""

    module: str
    """It has `app`, a Typer of sub-commands, or `register(app)`, which adds one command."""
    summary: str


class LazyGroup(TyperGroup):
    """A group of the `entries` that a subclass names."""

    entries: ClassVar[Mapping[str, Entry]] = {}

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - the library's signature
        """The names, in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: object, cmd_name: str) -> Command | None:  # noqa: ARG002
        entry = self.entries.get(cmd_name)
        return load_command(cmd_name, entry) if entry is not None else None

    def shell_complete(self, ctx: Any, incomplete: str) -> list[CompletionItem]:  # noqa: ANN401
        """The commands that begin so, without importing them, and the group's own options."""
        named = {name: entry.summary for name, entry in self.entries.items() if name.startswith(incomplete)}
        options = super(TyperGroup, self).shell_complete(ctx, incomplete)
        return [*(CompletionItem(name, help=summary) for name, summary in named.items()), *options]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - the library's private types
        """Find the command that `args` begin with; suggest one if there is none of that name."""
        if args[0] not in self.entries and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.entries, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.entries)}"
            ctx.fail(f"No such command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ANN401, ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])


def load_command(name: str, entry: Entry) -> Command:
    """Import the module of a command and make it ready to run."""
    module = importlib.import_module(entry.module)
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False)
        module.register(app)
        command = cast(Command, get_command(app))
    else:
        command = cast(Command, get_group(app))
    command.name = name
    _plain(command)
    return command


def _plain(command: Command) -> None:
    """Make the help of a command and all below it plain text, with examples that can be copied."""
    command.rich_markup_mode = None
    if isinstance(command, TyperGroup):
        children = [cast(Command, child) for child in command.commands.values()]
        for child in children:
            _plain(child)
        if command.epilog is None and children:
            command.epilog = children[0].epilog
    if command.epilog and "\b" not in command.epilog:
        command.epilog = f"\b\n{command.epilog}"  # keeps the lines as they are
