"""docs/api.md says what the application does: the same calls, the same statuses, examples that work."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from stores import AdminCalls
from telemetry_feeds import HELLO, HandClock, predicting, telemetry

from pdmuxd.controlplane import api
from pdmuxd.controlplane.api.problems import ALWAYS, PROBLEMS
from pdmuxd.controlplane.api.slos import SloIn
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon import httpd
from pdmuxd.daemon.httpd import refusals
from pdmuxd.daemon.httpd.refusals import Refusal

TEXT = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
CALL = re.compile(r"^\| `(GET|POST|PUT|PATCH|DELETE) (/api/v1\S*)` \|[^|]*\| ([\d, ]+) \|$", re.MULTILINE)


def test_every_call_is_in_the_reference_with_its_statuses_when_served(call: AdminCalls) -> None:
    served = {
        (method.upper(), path): {int(status) for status in operation["responses"]} - ALWAYS
        for path, item in call.app.openapi()["paths"].items()
        for method, operation in item.items()
    }
    told = {
        (method, path): set(map(int, statuses.split(","))) - ALWAYS
        for method, path, statuses in CALL.findall(TEXT)
    }
    assert told == served


def test_every_problem_is_in_the_reference_when_it_can_reach_a_client() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+) \|", TEXT, re.MULTILINE)
    told = {(int(status), slug) for status, slugs in rows for slug in re.findall(r"`([a-z-]+)`", slugs)}
    ours = {(status.value, slug) for _, status, slug in PROBLEMS}
    before = {(one.status, one.cause.replace("_", "-")) for one in refused_before()}
    assert told == ours | answered_directly() | before


def refused_before() -> list[Refusal]:
    return [one for one in vars(refusals).values() if isinstance(one, Refusal)]


def answered_directly() -> set[tuple[int, str]]:
    """Status and slug of each call of `problem` that names both."""
    folders = [Path(package.__file__).parent for package in (api, httpd)]
    calls = (
        node
        for folder in folders
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "problem"
    )
    named = [[arg.value for arg in call.args if isinstance(arg, ast.Constant)] for call in calls]
    return {(values[0], values[1]) for values in named if isinstance(values[0] if values else None, int)}


def test_every_problem_is_declared_for_every_call_when_it_comes_before_the_routes() -> None:
    guard = {status for status, _ in answered_directly()}
    assert guard | {one.status for one in refused_before()} <= ALWAYS


def test_every_range_is_in_the_reference_when_targets_are_checked() -> None:
    for field, allowed in SloIn.allowed.items():
        assert re.search(rf"^\| `{field}` \|.*\| {re.escape(allowed)} \|$", TEXT, re.MULTILINE), field


def curl_lines() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    words = [shlex.split(block, comments=True) for block in blocks if "curl" in block]
    lines: list[list[str]] = []
    for word in (word for block in words for word in block):
        if word == "curl":
            lines.append([])
        elif lines:
            lines[-1].append(word)
    return lines


@pytest.mark.parametrize("line", curl_lines(), ids=" ".join)
async def test_an_example_works_when_it_is_pasted(control_plane: ControlPlane, line: list[str]) -> None:
    known = telemetry(HandClock())
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    known.events.close()  # a stream would not end
    call = AdminCalls(control_plane, telemetry=known, predictors=predicting)
    method, path, content, headers = None, "", None, {}
    for option, value in zip(line, [*line[1:], ""], strict=True):
        if option.startswith("$PDMUXD"):
            path = option.removeprefix("$PDMUXD")
        if option == "-X":
            method = value
        if option == "-d":
            content = value
        if option == "-H" and not value.startswith("$AUTH"):
            name, _, text = value.partition(": ")
            headers[name] = text
    method = method or ("GET" if content is None else "POST")
    if (method, path) != ("POST", "/api/v1/tenants"):
        control_plane.create_tenant("chat")
    if "/keys/key_" in path:
        path = re.sub(r"key_\w+", control_plane.keys.issue("chat").key_id, path)
    if "/admin-tokens/" in path:
        control_plane.admin_tokens.issue("deploy")

    answer = await call(method, path, content=content, headers=headers)

    assert answer.status_code in (200, 201, 204), answer.text
