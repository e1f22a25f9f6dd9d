"""Sends the cases through a gateway, and compares what two engines answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from daemon_process import Daemon

from conformity import chat, items, text
from conformity.case import MODEL, Case
from conformity.shape import Shape, shape_of

RECORDED = Path(__file__).with_name("sglang.json")
"""What SGLang answers: `python tests/lab conformance --python PYTHON --write FILE`."""
AT_ONCE = 8
PATIENCE_S = 120.0
"""A 503 of an engine that was silent on busy cores is asked again so long."""


def all_cases() -> list[Case]:
    """Every case, in the order in which they are sent."""
    found = [*chat.cases(), *text.cases(), *items.cases()]
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return found


def ask_all(daemon: Daemon, cases: Sequence[Case]) -> dict[str, Shape]:
    """The shape of each case's answer, by the case's name."""
    return asyncio.run(_ask_all(daemon, cases))


async def _ask_all(daemon: Daemon, cases: Sequence[Case]) -> dict[str, Shape]:
    left, shapes = iter(cases), {}
    headers = {"Authorization": f"Bearer {daemon.key}", "Content-Type": "application/json"}

    async def work(client: httpx.AsyncClient) -> None:
        for case in left:
            shapes[case.name] = shape_of(case, await _ask(client, case, daemon.model), daemon.model)

    async with httpx.AsyncClient(
        base_url=daemon.data_url, headers=headers, timeout=300, trust_env=False
    ) as client:
        await asyncio.gather(*(work(client) for _ in range(AT_ONCE)))
    return {case.name: shapes[case.name] for case in cases}


async def _ask(client: httpx.AsyncClient, case: Case, model: str) -> httpx.Response:
    content = None
    if case.body is not None:
        content = case.body if isinstance(case.body, str) else json.dumps(case.body)
        content = content.replace(MODEL, model)
    request = client.build_request(case.method, case.path.replace(MODEL, model), content=content)
    for name, value in (case.headers or {}).items():
        if value is None:
            del request.headers[name]
        else:
            request.headers[name] = value
    end_s = time.monotonic() + PATIENCE_S
    while True:
        answer = await client.send(request)
        if answer.status_code != 503 or time.monotonic() > end_s:
            return answer
        await asyncio.sleep(1.0)


def recorded() -> dict[str, Shape]:
    """What SGLang answered."""
    found: dict[str, Shape] = json.loads(RECORDED.read_text())["answers"]
    return found


def write(shapes: Mapping[str, Shape], versions: Mapping[str, str], file: Path) -> None:
    """Keep a recording, a line for each case."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(shape)}" for name, shape in shapes.items())
    file.write_text(f'{{\n "versions": {json.dumps(versions)},\n "answers": {{\n{lines}\n }}\n}}\n')


def differences(here: Mapping[str, Shape], there: Mapping[str, Shape]) -> Iterator[tuple[str, str, Any, Any]]:
    """Case, place in its shape, and what each of the two has there; of two statuses nothing but these."""
    for name in {**there, **here}:
        one, other = here.get(name, {"status": "no case"}), there.get(name, {"status": "no case"})
        if one["status"] != other["status"]:
            one, other = ({"status": each["status"]} for each in (one, other))
        yield from _differences(name, "", one, other)


def _differences(case: str, place: str, here: Any, there: Any) -> Iterator[tuple[str, str, Any, Any]]:
    if here == there:
        return
    if isinstance(here, dict) and isinstance(there, dict):
        for name in sorted({*here, *there}):
            at = f"{place}.{name}".lstrip(".")
            yield from _differences(case, at, here.get(name, "absent"), there.get(name, "absent"))
    elif isinstance(here, list) and isinstance(there, list) and _is_form(here) and _is_form(there):
        yield from _differences(case, f"{place}[]", here[0], there[0])
    else:
        yield case, place, here, there


def _is_form(value: Sequence[Any]) -> bool:
    return len(value) == 1 and isinstance(value[0], dict)
