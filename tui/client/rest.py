"""REST calls whose problems are values, since a screen shows them and goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.target import Target

if TYPE_CHECKING:
    import httpx

API = "/api/v1"
WHY_HEADER = "X-Change-Reason"
PROBLEM = "application/problem+json"
TIMEOUT_S = 5.0
NO_ANSWER = 0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call did not do what was asked; `status` is 0 where nothing answered."""

    status: int
    detail: str
    kind: str = ""
    """The last part of the problem's type."""
    field: str | None = None

    @property
    def is_missing_route(self) -> bool:
        """Whether this daemon does not know the path at all."""
        return self.status in (404, 405, 501)


class _Problem(msgspec.Struct, kw_only=True):
    detail: str = ""
    type: str = ""
    field: str | None = None


class RestClient:
    """Calls to `/api/v1`. The library for them is imported at the first one, not before the first screen."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @cached_property
    def http(self) -> httpx.AsyncClient:
        """The HTTP client with its connections."""
        import httpx

        return httpx.AsyncClient(
            base_url=self._target.url,
            timeout=TIMEOUT_S,
            trust_env=False,  # a proxy of the environment does not lie between us and a tunnel
            transport=self._target.transport,
        )

    def headers(self) -> dict[str, str]:
        """The token as it is now."""
        return {"Authorization": f"Bearer {self._target.token()}"}

    async def get(
        self, path: str, kind: type[T], params: Mapping[str, str | int] | None = None
    ) -> T | Refusal:
        """Send a GET."""
        return await self.call("GET", path, kind, params=params)

    async def call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, str | int] | None = None,
        if_match: int | None = None,
        why: str | None = None,
    ) -> T | Refusal:
        """Call and turn the answer into a `kind`; `why` is for the audit."""
        import httpx

        headers = self.headers()
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        if why is not None:
            headers[WHY_HEADER] = why
        sent = {name.encode(): text.encode() for name, text in headers.items()}
        try:
            response = await self.http.request(method, API + path, json=body, params=params, headers=sent)
        except httpx.HTTPError as error:
            return Refusal(status=NO_ANSWER, detail=f"no answer: {text_of(error)}")
        if not response.is_success:
            return refusal(response)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.MsgspecError as error:
            return Refusal(status=response.status_code, detail=f"an answer that is not understood: {error}")

    async def close(self) -> None:
        """Close all connections."""
        if "http" in self.__dict__:
            await self.http.aclose()


def refusal(response: httpx.Response) -> Refusal:
    """The problem of an answer that has been read."""
    problem = _Problem()
    if response.headers.get("Content-Type", "").startswith(PROBLEM):
        try:
            problem = msgspec.json.decode(response.content, type=_Problem)
        except msgspec.MsgspecError:
            problem = _Problem()
    return Refusal(
        status=response.status_code,
        detail=printable(problem.detail) or f"HTTP {response.status_code}",
        kind=problem.type.rpartition(":")[2],
        field=problem.field,
    )


def text_of(error: Exception) -> str:
    """An error's text, or its type where it has none: some errors of the library have no text."""
    return printable(str(error)) or type(error).__name__


Json = dict[str, Any]
