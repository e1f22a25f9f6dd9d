"""The command `pdmuxd`: options that all commands share, and how errors and exit codes come about.

Exit codes: 0 done, 1 it did not work, 2 it was asked wrongly, 3 (`diff`) it differs, 130 interrupted.
Whatever goes wrong, a person reads one line; `--debug` adds the traceback of an unexpected error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from typer.main import get_command

from pdmuxd.daemon.cli.lazy import Entry, LazyGroup
from pdmuxd.daemon.process.redaction import mask_text
from pdmuxd.engine.core.errors import (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    PartitionError,
    PdmuxdError,
    PolicyError,
    ProfileError,
    SettingsError,
    SloError,
    StoreSetupError,
    TraceError,
)

if TYPE_CHECKING:
    from pdmuxd.daemon.settings import LoadedSettings

COMMANDS = {
    "serve": Entry("pdmuxd.daemon.cli.serve", "Run the daemon."),
    "status": Entry("pdmuxd.daemon.cli.status", "Show the daemon, its engine, targets and alarms."),
    "engine": Entry("pdmuxd.daemon.cli.engine", "Start, drain, resume and restart the engine."),
    "limit": Entry("pdmuxd.daemon.cli.limit", "Limit what tenants and keys may use."),
    "price": Entry("pdmuxd.daemon.cli.price", "Say what tokens cost, so that usage is told in money too."),
    "reload": Entry("pdmuxd.daemon.cli.reload", "Have the daemon read its settings again."),
    "upgrade": Entry("pdmuxd.daemon.cli.upgrade", "Put a new daemon process in place, losing no request."),
    "install-service": Entry("pdmuxd.daemon.cli.install_service", "Install it as a service of systemd."),
    "install-sglang": Entry("pdmuxd.daemon.cli.install_sglang", "Install SGLang in its own environment."),
    "tenant": Entry("pdmuxd.daemon.cli.tenant", "Create, list and switch off tenants, and issue API keys."),
    "slo": Entry("pdmuxd.daemon.cli.slo", "Show and change a tenant's latency targets."),
    "what-if": Entry("pdmuxd.daemon.cli.what_if", "Replay recent traffic under other settings."),
    "apply": Entry("pdmuxd.daemon.cli.apply", "Make tenants and policy as a YAML file says."),
    "diff": Entry("pdmuxd.daemon.cli.diff", "Say what a YAML file would change."),
    "export": Entry("pdmuxd.daemon.cli.export", "Print tenants and policy as such a file."),
    "policy": Entry("pdmuxd.daemon.cli.policy", "Show and change the policy in force, and its shadow."),
    "admin-token": Entry("pdmuxd.daemon.cli.admin_token", "Issue, list and revoke tokens of operators."),
    "audit": Entry("pdmuxd.daemon.cli.audit", "Show who changed what, when and why."),
    "usage": Entry("pdmuxd.daemon.cli.usage", "Show what each tenant used, as a table, JSON or CSV."),
    "token": Entry("pdmuxd.daemon.cli.token", "Make and end the token that only reads."),
    "profile": Entry("pdmuxd.daemon.cli.profile", "Measure a model on this GPU, and keep what was measured."),
    "top": Entry("pdmuxd.daemon.cli.top", "Watch and tune it live, in the terminal."),
    "web": Entry("pdmuxd.daemon.cli.web", "Print the address of the pages for a browser."),
    "replay": Entry("pdmuxd.daemon.cli.replay", "Replay a trace in virtual time and compare policies."),
    "generate": Entry("pdmuxd.daemon.cli.generate", "Write a load of documented shape as a trace."),
    "compare": Entry("pdmuxd.daemon.cli.compare", "Find the rate that each policy holds on a trace."),
    "bench": Entry("pdmuxd.daemon.cli.bench", "Measure engines against each other on this machine."),
    "db": Entry("pdmuxd.daemon.cli.db", "Upgrade, check, back up and restore the database."),
    "config": Entry("pdmuxd.daemon.cli.config", "Show the effective settings, or an example of all."),
    "monitoring": Entry(
        "pdmuxd.daemon.cli.monitoring", "Write rules and a dashboard for Prometheus, Grafana."
    ),
    "doctor": Entry("pdmuxd.daemon.cli.doctor", "Check this machine and installation."),
    "support-bundle": Entry(
        "pdmuxd.daemon.cli.support_bundle", "Collect what helpers need, without secrets."
    ),
    "version": Entry("pdmuxd.daemon.cli.version", "Print the version."),
}

USAGE_ERRORS = (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    PartitionError,
    PolicyError,
    ProfileError,
    SettingsError,
    SloError,
    StoreSetupError,
    TraceError,
)
"""Errors that a different command line or configuration would avoid: exit code 2. Others end with 1."""

FAILED, USAGE = 1, 2

EXAMPLES = """\b
Examples:
  pdmuxd serve --first-run
  pdmuxd --set data.port=8090 serve
  pdmuxd --config /etc/pdmuxd/pdmuxd.toml config show"""


def _version(wanted: bool) -> None:
    if wanted:
        from pdmuxd.daemon.cli.version import show

        show()
        raise typer.Exit


_CONFIG = typer.Option("--config", metavar="FILE", help="The pdmuxd.toml to read.")
_SET = typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated.")
_LEVEL = typer.Option("--log-level", metavar="LEVEL", help="Same as --set log.level=LEVEL.")
_WHY = typer.Option("--why", metavar="TEXT", help="Why, for the audit of what the command changes.")
_VERSION = typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
_DEBUG = typer.Option("--debug", help="Print the traceback of an unexpected error.")


class _Commands(LazyGroup):
    entries: ClassVar = COMMANDS


app = typer.Typer(cls=_Commands, rich_markup_mode=None, invoke_without_command=True, epilog=EXAMPLES)


@app.callback()
def root(
    ctx: typer.Context,
    config: Annotated[Path | None, _CONFIG] = None,
    assignments: Annotated[list[str] | None, _SET] = None,
    log_level: Annotated[str | None, _LEVEL] = None,
    why: Annotated[str | None, _WHY] = None,
    debug: Annotated[bool, _DEBUG] = False,
    version: Annotated[bool, _VERSION] = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Keep per-tenant latency targets of LLM serving on one GPU."""
    if debug:
        sys.excepthook = sys.__excepthook__
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        return
    if ctx.invoked_subcommand != "version":
        from pdmuxd.daemon.settings import DeferredSettings

        ctx.meta["pdmuxd.why"] = why
        ctx.obj = DeferredSettings(_reader(config, assignments or [], log_level))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never shows a traceback without `--debug`."""
    sys.excepthook = _unexpected
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        result = get_command(app).main(args, prog_name="pdmuxd", standalone_mode=False)
        sys.stdout.flush()
    except PdmuxdError as error:
        return _fail(str(error), USAGE if isinstance(error, USAGE_ERRORS) else FAILED)
    except typer.TyperException as error:
        return _fail(_usage_text(error), error.exit_code)
    except typer.Abort:
        return _fail("aborted", FAILED)
    except BrokenPipeError:
        # The reader of our output has gone: give the interpreter something else to flush to at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return result if isinstance(result, int) else 0


def _reader(
    config: Path | None, assignments: Sequence[str], log_level: str | None
) -> Callable[[], LoadedSettings]:
    def read() -> LoadedSettings:
        from pdmuxd.daemon.process.logging import configure_logging
        from pdmuxd.daemon.settings import load_settings
        from pdmuxd.daemon.settings.layers import parse_assignments

        overrides = parse_assignments(assignments)
        if log_level is not None:
            overrides["log.level"] = log_level
        loaded = load_settings(config, overrides)
        configure_logging(loaded.settings.log.level, loaded.settings.log.format)
        return loaded

    return read


def _fail(text: str, code: int) -> int:
    typer.echo(f"error: {' '.join(text.split())}", err=True)
    return code


def _usage_text(error: typer.TyperException) -> str:
    from pdmuxd.daemon.cli.wrong_values import in_words

    text = in_words(error) or error.format_message().rstrip(".")
    ctx: typer.Context | None = getattr(error, "ctx", None)
    return f"{text} (see {ctx.command_path} --help)" if ctx is not None else text


def _unexpected(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print one line instead of the interpreter's traceback."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    text = f"{kind.__name__}: {error}" if str(error) else kind.__name__
    _fail(f"unexpected {mask_text(text)} (run `pdmuxd --debug ...` for the traceback)", FAILED)


if __name__ == "__main__":
    sys.exit(main())
