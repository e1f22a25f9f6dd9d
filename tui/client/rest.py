"""REST calls whose problems are values, since a screen shows them and goes on."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from pdmuxd.tui.client.api.async_client import AsyncClient
from pdmuxd.tui.client.api.errors import ApiError, ForeignError, ProblemError
from pdmuxd.tui.client.target import Target

TIMEOUT_S = 5.0
NO_ANSWER = 0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call did not do what was asked; `status` is 0 where nothing answered."""

    status: int
    detail: str
    kind: str = ""
    """The problem's code, such as `stale-version`."""
    field: str | None = None

    @property
    def is_missing_route(self) -> bool:
        """Whether this daemon does not know the path at all."""
        return self.status in (404, 405, 501)


class RestClient:
    """The client of one daemon, and its answers as the console's values."""

    def __init__(self, target: Target) -> None:
        # A screen asks again by itself, so nothing is sent twice.
        self.api = AsyncClient(
            target.url, target.token, timeout_s=TIMEOUT_S, retries=0, transport=target.transport
        )

    async def ask(self, answer: Awaitable[object], kind: type[T]) -> T | Refusal:
        """Wait for an answer of `api` and turn it into a `kind`."""
        try:
            return msgspec.convert(await answer, kind)
        except ApiError as error:
            return refusal(error)
        except msgspec.ValidationError as error:
            return Refusal(status=200, detail=f"an answer that is not understood: {error}")

    async def close(self) -> None:
        await self.api.close()


def refusal(error: ApiError) -> Refusal:
    """An error as a value."""
    match error:
        case ProblemError():
            return Refusal(status=error.status, detail=error.detail, kind=error.code, field=error.field)
        case ForeignError():
            return Refusal(status=error.status, detail=str(error))
    return Refusal(status=NO_ANSWER, detail=str(error))
