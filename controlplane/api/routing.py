"""Routes of the admin address: each has its rule of access, and takes no query that it does not know."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from pdmuxd.controlplane.api.access import access_of, authorise
from pdmuxd.controlplane.api.idempotency import IdempotentAnswers
from pdmuxd.engine.core.errors import InvalidValueError

_SHOWN_CHARACTERS = 40


class AdminRoute(APIRoute):
    """A route that asks who calls before it looks at what was sent."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the framework's handler. Raises: LookupError, at start, for a route without a rule."""
        handle = super().get_route_handler()
        accesses = {method: access_of(method, self.path_format) for method in self.methods or ()}
        known = frozenset(field.alias for field in _queries(self.dependant))

        async def checked(request: Request) -> Response:
            authorise(request, accesses[request.method])
            _refuse_unknown([name for name, _ in request.query_params.multi_items()], known)
            if request.method != "POST":
                return await handle(request)
            answers: IdempotentAnswers = request.app.state.idempotent_answers
            return await answers.answer(request, handle)

        return checked


def admin_router(*, tags: list[str], prefix: str = "") -> APIRouter:
    """A router whose routes are all checked."""
    return APIRouter(prefix=prefix, tags=list(tags), route_class=AdminRoute)


def _queries(dependant: Any) -> list[Any]:  # noqa: ANN401 - the framework's own class
    nested = [field for each in dependant.dependencies for field in _queries(each)]
    return [*dependant.query_params, *nested]


def _refuse_unknown(given: Iterable[str], known: frozenset[str]) -> None:
    seen: set[str] = set()
    for name in given:
        if name in seen:
            raise InvalidValueError(name, f"{name} is given twice; allowed is once")
        seen.add(name)
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            shown = ascii(name[:_SHOWN_CHARACTERS])
            raise InvalidValueError(
                name[:_SHOWN_CHARACTERS], f"{shown} is not a query parameter here; allowed are {allowed}"
            )
