"""The client that waits for its answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pdmuxd.tui.client.api.answers import Pages, content_of
from pdmuxd.tui.client.api.calls import (
    EVENT_SILENCE_S,
    RETRIES,
    TIMEOUT_S,
    Call,
    Token,
    event_call,
    shows_certificate,
)
from pdmuxd.tui.client.api.errors import ApiError, ForeignError, NoAnswerError, error_of, text_of
from pdmuxd.tui.client.api.operations import Operations
from pdmuxd.tui.client.sse import EVENT_STREAM, ServerEvent, SseError, SseParser

if TYPE_CHECKING:
    import httpx


class Client(Operations):
    """Calls to `/api/v1`, each a method; every one raises: ApiError, of the kind that fits.

    `url` is the admin address; `token` may be a function, which is asked at each call. `timeout_s` is for
    each step of a call (to connect, to send, to wait for the next bytes), not for all of it. `retries` is
    how often a call is sent again where that cannot change anything twice. `why` is noted in the audit of
    what is changed. Threads may share a client.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
        why: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        import httpx

        self._token, self._why, self._retries = token, why, retries
        # No proxy of the environment lies between us and the daemon on this machine or behind a tunnel.
        self._http = httpx.Client(
            base_url=url,
            timeout=timeout_s,
            trust_env=False,
            transport=transport,
            verify=shows_certificate(url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a path below `/api/v1`, with what `Call` takes; the answer as JSON, or as text."""
        return content_of(self._send(Call(method=method, path=path, **options)))

    def events(
        self, *, types: Iterable[str] | None = None, after: str | None = None
    ) -> Iterator[ServerEvent]:
        """What happens, as it happens: the event's type, its JSON as bytes, its id.

        Ends when the daemon closes the stream. Ask again with `after`, the last id, to miss nothing.
        """
        import httpx

        call = event_call(types, after)
        options = call.options | {"headers": call.headers(self._token, self._why)}
        timeout = httpx.Timeout(EVENT_SILENCE_S, connect=self._http.timeout.connect)
        parser = SseParser()
        try:
            with self._http.stream(**options, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    raise error_of(answer)
                if not answer.headers.get("Content-Type", "").startswith(EVENT_STREAM):
                    detail = f"what answers at {answer.url} is no event stream"
                    raise ForeignError(detail, status=answer.status_code)
                for chunk in answer.iter_bytes():
                    yield from parser.feed(chunk)
        except (httpx.HTTPError, httpx.InvalidURL, SseError) as error:
            raise NoAnswerError(f"no answer: {text_of(error)}", was_sent=True) from error

    def _pages(self, path: str, query: Mapping[str, object], items: str | None) -> Iterator[Any]:
        pages = Pages(path, query, items)
        while pages.path is not None:
            yield from pages.read(self._send(Call(method="GET", path=pages.path, query=pages.query)))

    def _send(self, call: Call) -> httpx.Response:
        for tried in range(1, self._retries + 2):
            try:
                return self._send_once(call)
            except ApiError as error:
                wait_s = call.retry_in_s(error, tried, self._retries)
                if wait_s is None:
                    raise
                time.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def _send_once(self, call: Call) -> httpx.Response:
        import httpx

        options = call.options | {"headers": call.headers(self._token, self._why)}
        if call.timeout_s is not None:
            options["timeout"] = call.timeout_s
        try:
            response = self._http.request(**options)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoAnswerError(f"no answer: {text_of(error)}", was_sent=False) from error
        except httpx.HTTPError as error:
            raise NoAnswerError(f"no answer: {text_of(error)}", was_sent=True) from error
        if not response.is_success:
            raise error_of(response)
        return response
