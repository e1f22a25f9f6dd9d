"""The client that is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pdmuxd.tui.client.api.answers import Pages, content_of
from pdmuxd.tui.client.api.async_operations import AsyncOperations
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
from pdmuxd.tui.client.sse import EVENT_STREAM, ServerEvent, SseError, SseParser

if TYPE_CHECKING:
    import httpx


class AsyncClient(AsyncOperations):
    """The same as `Client`, awaited. The HTTP library is imported at the first call."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
        why: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url, self._timeout_s, self._transport = url, timeout_s, transport
        self._token, self._why, self._retries = token, why, retries

    @cached_property
    def http(self) -> httpx.AsyncClient:
        """The HTTP client with its connections."""
        import httpx

        # No proxy of the environment lies between us and the daemon on this machine or behind a tunnel.
        return httpx.AsyncClient(
            base_url=self._url,
            timeout=self._timeout_s,
            trust_env=False,
            transport=self._transport,
            verify=shows_certificate(self._url),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if "http" in self.__dict__:
            await self.http.aclose()

    async def request(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a path below `/api/v1`, with what `Call` takes; the answer as JSON, or as text."""
        return content_of(await self._send(Call(method=method, path=path, **options)))

    async def events(
        self, *, types: Iterable[str] | None = None, after: str | None = None
    ) -> AsyncGenerator[ServerEvent]:
        """What happens, as it happens: the event's type, its JSON as bytes, its id.

        Ends when the daemon closes the stream. Ask again with `after`, the last id, to miss nothing.
        """
        import httpx

        call = event_call(types, after)
        options = call.options | {"headers": call.headers(self._token, self._why)}
        timeout = httpx.Timeout(EVENT_SILENCE_S, connect=self.http.timeout.connect)
        parser = SseParser()
        try:
            async with self.http.stream(**options, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise error_of(answer)
                if not answer.headers.get("Content-Type", "").startswith(EVENT_STREAM):
                    detail = f"what answers at {answer.url} is no event stream"
                    raise ForeignError(detail, status=answer.status_code)
                async for chunk in answer.aiter_bytes():
                    for event in parser.feed(chunk):
                        yield event
        except (httpx.HTTPError, httpx.InvalidURL, SseError) as error:
            raise NoAnswerError(f"no answer: {text_of(error)}", was_sent=True) from error

    async def _pages(self, path: str, query: Mapping[str, object], items: str | None) -> AsyncIterator[Any]:
        pages = Pages(path, query, items)
        while pages.path is not None:
            response = await self._send(Call(method="GET", path=pages.path, query=pages.query))
            for one in pages.read(response):
                yield one

    async def _send(self, call: Call) -> httpx.Response:
        for tried in range(1, self._retries + 2):
            try:
                return await self._send_once(call)
            except ApiError as error:
                wait_s = call.retry_in_s(error, tried, self._retries)
                if wait_s is None:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    async def _send_once(self, call: Call) -> httpx.Response:
        import httpx

        options = call.options | {"headers": call.headers(self._token, self._why)}
        if call.timeout_s is not None:
            options["timeout"] = call.timeout_s
        try:
            response = await self.http.request(**options)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoAnswerError(f"no answer: {text_of(error)}", was_sent=False) from error
        except httpx.HTTPError as error:
            raise NoAnswerError(f"no answer: {text_of(error)}", was_sent=True) from error
        if not response.is_success:
            raise error_of(response)
        return response
