"""`pdmuxd engine`: an operator's actions on the engine of the running daemon."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pdmuxd.daemon.cli.admin_client import AdminClient, daemon_of
from pdmuxd.daemon.cli.output import AsJson, instant, print_json, print_table
from pdmuxd.daemon.cli.status import in_flight_text
from pdmuxd.engine.core.errors import EngineError

app = typer.Typer(help="Start, drain, resume and restart the engine of the running daemon.")

POLL_S = 0.25

Wait = Annotated[
    bool, typer.Option("--wait", help="Show what goes on until it is done. Ctrl-C ends the watching only.")
]


@app.command(epilog="Example: pdmuxd engine start --wait")
def start(ctx: typer.Context, wait: Wait = False, as_json: AsJson = False) -> None:
    """Start an engine that is down now, without waiting for the end of its back-off."""
    with daemon_of(ctx) as client:
        done: Mapping[str, Any] = client.start_engine()
        _tell(done, as_json=as_json)
        if wait:
            done = {**done, "state": _watch_start(client, shown=not as_json)}
    _tell_json(done, as_json=as_json)


@app.command(epilog="Example: pdmuxd engine drain --wait")
def drain(ctx: typer.Context, wait: Wait = False, as_json: AsJson = False) -> None:
    """Refuse new requests and let those in flight finish. The engine stays, until `pdmuxd engine resume`."""
    with daemon_of(ctx) as client:
        done: Mapping[str, Any] = client.drain_engine()
        _tell(done, as_json=as_json)
        if wait:
            done = {**done, "state": _watch_drain(client, shown=not as_json)}
    _tell_json(done, as_json=as_json)


@app.command(epilog="Example: pdmuxd engine resume")
def resume(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Take new requests again after a drain."""
    with daemon_of(ctx) as client:
        done: Mapping[str, Any] = client.resume_engine()
    _tell(done, as_json=as_json)
    _tell_json(done, as_json=as_json)


@app.command(epilog="Example: pdmuxd engine restart")
def restart(
    ctx: typer.Context,
    at_once: Annotated[
        bool,
        typer.Option("--at-once", help="Do not let requests in flight finish; they end with an error."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show its steps until the next engine serves.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """End the engine and start another. Requests in flight may finish first, within drain_timeout_s."""
    with daemon_of(ctx) as client:
        before = client.get_engine()
        done: Mapping[str, Any] = client.restart_engine({"at_once": at_once})
        _tell(done, as_json=as_json)
        if wait:
            ended = before["pid"] if before["state"] in ("serving", "draining") else None
            done = {**done, "state": _watch_start(client, shown=not as_json, ended=ended)}
    _tell_json(done, as_json=as_json)


@app.command(epilog="Example: pdmuxd engine quarantine --release chat")
def quarantine(
    ctx: typer.Context,
    release: Annotated[str | None, typer.Option(help="Serve what is held of this tenant again.")] = None,
    release_all: Annotated[bool, typer.Option("--release-all", help="The same of all tenants.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is refused since it was in flight when two engines ended, or serve it again."""
    if release is not None and release_all:
        raise typer.BadParameter("give either --release TENANT or --release-all")
    with daemon_of(ctx) as client:
        if release is not None or release_all:
            released = client.release_quarantine({"tenant": release})
            if as_json:
                print_json(released)
            else:
                typer.echo(f"released: {released['released']}")
            return
        held = client.list_quarantine()
    if as_json:
        print_json(held)
        return
    rows = [
        {
            "tenant": each["tenant"],
            "what": f"body {each['body'][:8]}" if each["body"] else "all requests",
            "until": instant(each["until"]),
            "request ids": " ".join(each["request_ids"]),
            "last error": each["engine_errors"][-1] if each["engine_errors"] else "",
        }
        for each in held
    ]
    print_table(rows, empty="nothing is held")


def _tell(done: Mapping[str, Any], *, as_json: bool) -> None:
    if not as_json:
        typer.echo(done["text"])


def _tell_json(done: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(done)


def _watch_drain(client: AdminClient, *, shown: bool) -> str:
    """Wait until nothing is in flight; say how it ended. Raises: EngineError if the drain ends otherwise."""
    progress = _Progress(shown=shown)
    while True:
        engine, in_flight = _now(client)
        if not engine["held"]:
            raise EngineError(f"the drain was ended before it was done: the engine is {engine['state']}")
        if engine["state"] == "down":
            raise EngineError(f"the engine went down while it was drained: {engine['last_error']}")
        if in_flight == 0:
            progress.say("drained: nothing is in flight")
            return str(engine["state"])
        progress.say(f"draining: {in_flight_text(engine, in_flight)}")
        time.sleep(POLL_S)


def _watch_start(client: AdminClient, *, shown: bool, ended: int | None = None) -> str:
    """Wait until an engine serves that is not the process `ended`; say which.

    Raises: EngineError if none comes up.
    """
    progress = _Progress(shown=shown)
    has_begun = False
    while True:
        engine, in_flight = _now(client)
        state, pid = engine["state"], engine["pid"]
        if pid is not None and pid == ended:
            progress.say(f"ending: {in_flight_text(engine, in_flight)}")
        elif state == "serving":
            progress.say(f"serving: process {pid}")
            return str(state)
        elif state == "down" and has_begun:
            raise EngineError(f"the engine did not come up and is tried again: {engine['last_error']}")
        else:
            has_begun = has_begun or state == "starting"
            progress.say(f"{state}" + (f": process {pid}" if pid is not None else ""))
        time.sleep(POLL_S)


def _now(client: AdminClient) -> tuple[Mapping[str, Any], int]:
    """The engine, and the requests in flight at the gateway."""
    engine = client.get_engine()
    totals = client.get_attainment(limit=0)["totals"]
    return engine, 0 if totals is None else totals["in_flight"]


class _Progress:
    """Prints a line only if it differs from the one before, so that a log stays short."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._last = ""

    def say(self, line: str) -> None:
        if self._shown and line != self._last:
            typer.echo(line)
        self._last = line
