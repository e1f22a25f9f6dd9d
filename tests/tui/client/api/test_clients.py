"""What both clients do with answers, refusals, lost connections, pages and versions."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from pdmuxd.client import (
    ApiError,
    AsyncClient,
    Client,
    ConflictError,
    ForeignError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    ProblemError,
    StaleVersionError,
    UnauthorizedError,
    UnavailableError,
    version_of,
)
from pdmuxd.tui.client.api import calls

URL = "http://admin"
Handler = Callable[[httpx.Request], httpx.Response]


def problem(
    status: int, code: str, detail: str = "no", field: str | None = None, **headers: str
) -> httpx.Response:
    body = {"type": f"urn:pdmuxd:problem:{code}", "status": status, "detail": detail, "field": field}
    return httpx.Response(
        status, content=json.dumps(body), headers={"Content-Type": "application/problem+json", **headers}
    )


class Both:
    """Does the same with either client, and counts what is sent."""

    def __init__(self, handler: Handler, kind: str, **options: Any) -> None:
        self.requests: list[httpx.Request] = []
        self._handler, self._kind, self._options = handler, kind, options

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._handler(request)
        # An answer belongs to the kind of client that has read it.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def __call__(self, name: str, *arguments: Any, **options: Any) -> Any:
        transport = httpx.MockTransport(self._handle)
        if self._kind == "sync":
            with Client(URL, "token", transport=transport, **self._options) as client:
                found = getattr(client, name)(*arguments, **options)
                return list(found) if name.startswith("iter_") or name == "events" else found
        return asyncio.run(self._awaited(transport, name, arguments, options))

    async def _awaited(self, transport: Any, name: str, arguments: Any, options: Any) -> Any:
        async with AsyncClient(URL, "token", transport=transport, **self._options) as client:
            found = getattr(client, name)(*arguments, **options)
            return await found if isinstance(found, Awaitable) else [one async for one in found]


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Both]:
    monkeypatch.setattr(calls, "RETRY_WAIT_S", 0.0)
    return lambda handler, **options: Both(handler, request.param, **options)


def test_a_call_is_sent_as_the_document_says(both: Callable[..., Both]) -> None:
    client = both(lambda _: httpx.Response(200, json={"version": 4}), why="Grüße")
    client("set_slo", "a/b", {"tbt_ms": 40}, force=True, if_match=3)
    (sent,) = client.requests
    assert (sent.method, sent.url.raw_path) == ("PUT", b"/api/v1/tenants/a%2Fb/slo?force=true")
    assert json.loads(sent.content) == {"tbt_ms": 40}
    assert sent.headers["Authorization"] == "Bearer token"
    assert sent.headers["If-Match"] == '"3"'
    assert dict(sent.headers.raw)[b"X-Change-Reason"].decode() == "Grüße"


def test_the_version_is_that_of_the_etag(both: Callable[..., Both]) -> None:
    client = both(lambda _: httpx.Response(200, json={"tenants": {}}, headers={"ETag": '"17"'}))
    found = client("get_config")
    assert found == {"tenants": {}}
    assert version_of(found) == 17
    assert version_of(both(lambda _: httpx.Response(200, json=[]))("list_profiles")) is None
    assert version_of(None) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, UnauthorizedError),
        (404, NotFoundError),
        (409, ConflictError),
        (412, StaleVersionError),
        (422, InvalidError),
        (503, UnavailableError),
        (500, ProblemError),
    ],
)
def test_a_refusal_is_an_error_of_its_kind(
    both: Callable[..., Both], status: int, kind: type[ProblemError]
) -> None:
    client = both(lambda _: problem(status, "some-code", "tbt_ms is 0", "slo.tbt_ms"), retries=0)
    with pytest.raises(kind) as raised:
        client("get_slo", "chat")
    error = raised.value
    assert (error.status, error.code, error.field) == (status, "some-code", "slo.tbt_ms")
    assert str(error) == "tbt_ms is 0"


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>", headers={"Content-Type": "application/json"}),
        httpx.Response(404, text="<html>"),
        httpx.Response(302, headers={"Location": "http://elsewhere"}),
    ],
)
def test_what_is_no_daemon_of_ours_is_told_as_such(both: Callable[..., Both], answer: httpx.Response) -> None:
    with pytest.raises(ForeignError):
        both(lambda _: answer)("get_engine")


def test_a_broken_problem_is_still_an_error(both: Callable[..., Both]) -> None:
    headers = {"Content-Type": "application/problem+json", "Retry-After": "soon"}
    with pytest.raises(UnavailableError, match="HTTP 503") as raised:
        both(lambda _: httpx.Response(503, content=b"{", headers=headers), retries=0)("get_engine")
    assert raised.value.retry_after_s is None


class Failing:
    """Fails a few times, then answers."""

    def __init__(self, *failures: httpx.Response | type[httpx.HTTPError]) -> None:
        self._failures = list(failures)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not self._failures:
            return httpx.Response(200, json={})
        failure = self._failures.pop(0)
        if isinstance(failure, httpx.Response):
            return failure
        raise failure("cut", request=request)


BUSY = problem(503, "store-unavailable", **{"Retry-After": "0"})


@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError, BUSY])
def test_reading_is_tried_again_whatever_failed(both: Callable[..., Both], failure: Any) -> None:
    client = both(Failing(failure, failure))
    client("get_engine")
    assert len(client.requests) == 3
    client = both(Failing(failure, failure, failure))
    with pytest.raises(ApiError):
        client("get_engine")
    assert len(client.requests) == 3


def test_a_change_is_tried_again_only_if_it_was_not_sent(both: Callable[..., Both]) -> None:
    client = both(Failing(httpx.ConnectError))
    client("start_engine")
    assert len(client.requests) == 2
    for failure in (httpx.ReadTimeout, BUSY):
        client = both(Failing(failure))
        with pytest.raises(ApiError):
            client("put_tenant", "chat", {})
        assert len(client.requests) == 1


def test_a_long_wait_is_left_to_the_caller(both: Callable[..., Both]) -> None:
    client = both(Failing(problem(503, "too-many-clients", **{"Retry-After": "60"})))
    with pytest.raises(UnavailableError) as raised:
        client("get_engine")
    assert raised.value.retry_after_s == 60
    assert len(client.requests) == 1


def test_a_lost_answer_says_whether_it_was_sent(both: Callable[..., Both]) -> None:
    for failure, was_sent in ((httpx.ConnectError, False), (httpx.ReadTimeout, True)):
        with pytest.raises(NoAnswerError) as raised:
            both(Failing(failure), retries=0)("get_engine")
        assert raised.value.was_sent is was_sent


def test_a_list_is_read_to_its_end_by_its_links(both: Callable[..., Both]) -> None:
    def pages(request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after", "")
        names = [name for name in "abcde" if name > after][:2]
        headers = (
            {"Link": f'</api/v1/tenants?limit=2&after={names[-1]}>; rel="next"'} if len(names) == 2 else {}
        )
        return httpx.Response(200, json=[{"name": name} for name in names], headers=headers)

    client = both(pages)
    assert [one["name"] for one in client("iter_tenants", limit=2)] == list("abcde")
    assert len(client.requests) == 3


def test_a_list_is_read_to_its_end_by_its_cursor(both: Callable[..., Both]) -> None:
    def pages(request: httpx.Request) -> httpx.Response:
        assert request.url.params["tenant"] == "chat"
        before = int(request.url.params.get("before", 6))
        ids = list(range(before - 1, max(0, before - 3), -1))
        following = ids[-1] if ids[-1] > 1 else None
        return httpx.Response(
            200, json={"entries": [{"entry_id": one} for one in ids], "next_before": following}
        )

    assert [one["entry_id"] for one in both(pages)("iter_audit", tenant="chat")] == [5, 4, 3, 2, 1]


def test_text_is_answered_as_text(both: Callable[..., Both]) -> None:
    client = both(lambda _: httpx.Response(200, text="a,b\n", headers={"Content-Type": "text/csv"}))
    assert client("get_usage_csv", from_="2026-01-01T00:00Z") == "a,b\n"
    assert dict(client.requests[0].url.params) == {"from": "2026-01-01T00:00Z", "format": "csv"}


def test_the_token_is_read_at_each_call() -> None:
    tokens = iter(["old", "new"])
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200, json={})

    with Client(URL, lambda: next(tokens), transport=httpx.MockTransport(handle)) as client:
        client.get_engine()
        client.get_engine()
    assert seen == ["Bearer old", "Bearer new"]


def test_events_are_read_until_the_stream_ends(both: Callable[..., Both]) -> None:
    body = b'id: 1-1\nevent: stats\ndata: {"a": 1}\n\nid: 1-2\nevent: alarm\ndata: {}\n\n'
    client = both(lambda _: httpx.Response(200, content=body, headers={"Content-Type": "text/event-stream"}))
    found = client("events", types=["stats", "alarm"], after="1-0")
    assert [(one.type, one.data, one.id) for one in found] == [
        ("stats", b'{"a": 1}', "1-1"),
        ("alarm", b"{}", "1-2"),
    ]
    assert client.requests[0].headers["Last-Event-ID"] == "1-0"
    assert client.requests[0].url.params["types"] == "stats,alarm"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(401, "unauthorized"), UnauthorizedError),
        (httpx.Response(200, json={}), ForeignError),
        (
            httpx.Response(200, content=b"x" * 5_000_000, headers={"Content-Type": "text/event-stream"}),
            NoAnswerError,
        ),
    ],
)
def test_what_is_no_stream_of_events_is_an_error(
    both: Callable[..., Both], answer: httpx.Response, kind: type[ApiError]
) -> None:
    with pytest.raises(kind):
        both(lambda _: answer)("events")


@pytest.mark.parametrize("url", ["https://gpu1:8081", "HTTPS://gpu1:8081"])
async def test_a_certificate_is_asked_for_when_the_address_is_encrypted(url: str) -> None:
    with Client(url, "secret") as client:
        context = client._http._transport._pool._ssl_context
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.cert_store_stats()["x509_ca"] > 0
    async with AsyncClient(url, "secret") as other:
        context = other.http._transport._pool._ssl_context
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.cert_store_stats()["x509_ca"] > 0
