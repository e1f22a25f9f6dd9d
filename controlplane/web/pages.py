"""Routes of pages: checked as those of REST are; what goes wrong is told on a page."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pdmuxd.controlplane.api.auth import PAGES_PREFIX, caller_of
from pdmuxd.controlplane.api.problems import as_problem
from pdmuxd.controlplane.api.routing import AdminRoute
from pdmuxd.controlplane.web.logins import session_of
from pdmuxd.controlplane.web.rendering import HEADERS, render
from pdmuxd.engine.core.errors import PdmuxdError

NAVIGATION = (
    ("/ui/overview", "Overview"),
    ("/ui/tenants", "Tenants"),
    ("/ui/requests", "Requests"),
    ("/ui/decisions", "Decisions"),
    ("/ui/gpu", "GPU"),
    ("/ui/alarms", "Alarms"),
    ("/ui/audit", "Audit"),
)
"""What an operator is led to, in this order."""
THEMES = ("light", "dark")


class PageRoute(AdminRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler of REST."""
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except (PdmuxdError, RequestValidationError, HTTPException) as error:
                found = as_problem(error)
                return page(request, "error.html", found.status, title=found.title, detail=found.detail)

        return told


def page_router() -> APIRouter:
    """A router of pages, which are no part of REST's document."""
    return APIRouter(prefix=PAGES_PREFIX, route_class=PageRoute, include_in_schema=False)


def page(
    request: Request, template: str, status: int = 200, /, *, title: str, **values: object
) -> HTMLResponse:
    """A whole page, in the frame."""
    caller, session = caller_of(request.scope), session_of(request)
    theme = request.cookies.get("pdmuxd-theme")
    text = render(
        template,
        title=title,
        caller=caller,
        navigation=NAVIGATION if caller.role != "tenant" else (),
        path=request.url.path,
        theme=theme if theme in THEMES else None,
        form_token=session.form_token if session is not None else "",
        **values,
    )
    return HTMLResponse(text, status, headers=HEADERS)


def part(template: str, **values: object) -> HTMLResponse:
    """A piece that a page asks for by itself."""
    return HTMLResponse(render(template, **values), headers=HEADERS)
