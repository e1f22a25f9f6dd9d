"""Makes the methods of the client that waits from those that are awaited: same arguments, same answers.

An awaited method awaits nothing but `request`. Where that answers at once, the method runs to its end in one
go, without an event loop.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pdmuxd.tui.client.api.async_operations import AsyncOperations

GivenP = ParamSpec("GivenP")
AnswerT = TypeVar("AnswerT")
_NAMES = ("__doc__", "__name__")


class Waiting(ABC):
    """What the methods below are made for."""

    @abstractmethod
    def request(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a path below `/api/v1`; the answer as JSON, or as text."""

    @abstractmethod
    def _pages(self, path: str, query: Mapping[str, object], items: str | None) -> Iterator[Any]:
        """Go through a list."""


class _AtOnce:
    def __init__(self, client: Waiting) -> None:
        self._client = client

    async def request(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401 - JSON
        return self._client.request(method, path, **options)


def waited(
    awaited: Callable[Concatenate[AsyncOperations, GivenP], Coroutine[Any, Any, AnswerT]],
) -> Callable[Concatenate[Waiting, GivenP], AnswerT]:
    """Make the method that returns what `awaited` returns."""

    def method(self: Waiting, /, *args: GivenP.args, **options: GivenP.kwargs) -> AnswerT:
        call = awaited(_AtOnce(self), *args, **options)  # type: ignore[arg-type] # request is all it needs
        try:
            call.send(None)
        except StopIteration as ended:
            answer: AnswerT = ended.value
            return answer
        raise AssertionError("an operation awaits its request alone")

    return update_wrapper(method, awaited, assigned=_NAMES)


def listed(
    awaited: Callable[Concatenate[AsyncOperations, GivenP], AsyncIterator[AnswerT]],
) -> Callable[Concatenate[Waiting, GivenP], Iterator[AnswerT]]:
    """Make the method that goes through the same pages as `awaited`, which only calls `_pages`."""

    def method(self: Waiting, /, *args: GivenP.args, **options: GivenP.kwargs) -> Iterator[AnswerT]:
        return awaited(self, *args, **options)  # type: ignore[arg-type, return-value] # as _pages does

    update_wrapper(method, awaited, assigned=_NAMES)
    signature = inspect.signature(awaited)
    returned = str(signature.return_annotation).removeprefix("Async")
    method.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return method
