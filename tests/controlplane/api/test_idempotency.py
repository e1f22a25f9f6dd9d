"""A POST with an Idempotency-Key is done once, and answered alike each time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from stores import AdminCalls

from pdmuxd.controlplane.api.idempotency import (
    HEADER,
    KEPT_S,
    KEY_MAX,
    MOST_ANSWERS,
    MOST_BYTES,
    IdempotentAnswers,
)
from pdmuxd.controlplane.database.callers import FILE_TOKEN, READER_TOKEN, Caller
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import InvalidValueError

TENANTS = "/api/v1/tenants"


async def test_a_key_is_issued_once_when_the_call_is_sent_again(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat")
    sent: dict[str, Any] = {"json": {"label": "laptop"}, "headers": {HEADER: "issue-1"}}
    first = await call("POST", f"{TENANTS}/chat/keys", **sent)
    again = await call("POST", f"{TENANTS}/chat/keys", **sent)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert first.headers.get("Idempotency-Replayed") is None
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["ETag"] == first.headers["ETag"]
    assert len(control_plane.keys.list("chat")) == 1


async def test_what_was_refused_is_tried_again_when_the_call_is_sent_again(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    sent: dict[str, Any] = {"json": {}, "headers": {HEADER: "issue-2"}}
    assert (await call("POST", f"{TENANTS}/chat/keys", **sent)).status_code == 404
    control_plane.create_tenant("chat")
    assert (await call("POST", f"{TENANTS}/chat/keys", **sent)).status_code == 201


@pytest.mark.parametrize(
    ("key", "path", "name"), [("used-1", TENANTS, "other"), ("used-2", "/api/v1/admin-tokens", "one")]
)
async def test_a_used_key_is_refused_when_the_call_is_another(
    call: AdminCalls, control_plane: ControlPlane, key: str, path: str, name: str
) -> None:
    headers = {HEADER: key}
    assert (await call("POST", TENANTS, json={"name": "one"}, headers=headers)).status_code == 201
    answer = await call("POST", path, json={"name": name}, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, HEADER)
    assert [tenant.name for tenant in control_plane.list_tenants()] == ["one"]


@pytest.mark.parametrize("key", ["", "a b", "x" * (KEY_MAX + 1), "\x7f"])
async def test_a_wrong_key_is_refused_when_it_is_sent(call: AdminCalls, key: str) -> None:
    answer = await call("POST", TENANTS, json={"name": "one"}, headers={HEADER: key})
    assert (answer.status_code, answer.json()["field"]) == (422, HEADER)
    assert "allowed are 1 to 200 visible ASCII characters" in answer.json()["detail"]


class Asked:
    """Answers of a handler that counts its calls."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls = 0
        self.body = b"{}"
        self.answers = IdempotentAnswers(now_s=lambda: self.now_s)
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def _handle(self, _: Request) -> Response:
        self.calls += 1
        await self.may_end.wait()
        return Response(self.body, 201)

    async def __call__(self, key: str, *, caller: Caller = FILE_TOKEN, sent: bytes = b"") -> Response:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": sent, "more_body": False}

        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": [(HEADER.lower().encode(), key.encode())],
            "pdmuxd.caller": caller,
        }
        return await self.answers.answer(Request(scope, receive), self._handle)


async def test_the_second_waits_for_the_first_when_both_come_at_once() -> None:
    asked = Asked()
    asked.may_end.clear()
    both = [asyncio.create_task(asked("k")) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.may_end.set()
    answers = await asyncio.gather(*both)
    assert asked.calls == 1
    assert [answer.status_code for answer in answers] == [201, 201]


async def test_the_second_is_carried_out_when_the_first_was_cut() -> None:
    asked = Asked()
    asked.may_end.clear()
    first, second = (asyncio.create_task(asked("k")) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    asked.may_end.set()
    assert (await second).status_code == 201
    assert asked.calls == 2


async def test_nobody_is_answered_with_anothers_answer() -> None:
    asked = Asked()
    await asked("k")
    await asked("k", caller=READER_TOKEN)
    assert asked.calls == 2


async def test_a_body_that_differs_is_refused() -> None:
    asked = Asked()
    await asked("k", sent=b"1")
    with pytest.raises(InvalidValueError, match="was used for another call or body"):
        await asked("k", sent=b"2")


async def test_an_answer_is_forgotten_after_a_day() -> None:
    asked = Asked()
    await asked("k")
    asked.now_s = KEPT_S
    await asked("k")
    assert asked.calls == 1
    asked.now_s = KEPT_S + 1
    await asked("k")
    assert asked.calls == 2


async def test_the_oldest_is_forgotten_when_there_are_many_or_they_are_large() -> None:
    asked = Asked()
    for number in range(MOST_ANSWERS + 1):
        await asked(f"k{number}")
    await asked("k1")
    assert asked.calls == MOST_ANSWERS + 1
    await asked("k0")
    assert asked.calls == MOST_ANSWERS + 2
    asked.body = b"x" * (MOST_BYTES // 2)
    for key in "abc":
        await asked(key)
    before = asked.calls
    await asked("c")
    assert asked.calls == before
    await asked("a")
    assert asked.calls == before + 1
