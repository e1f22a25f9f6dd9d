"""Routes of pages: checked as those of REST are; what goes wrong is told on a page."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

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
from pdmuxd.controlplane.web.tables import Table, csv_of
from pdmuxd.engine.core.errors import PdmuxdError

NAVIGATION = (
    ("/ui/overview", "Overview"),
    ("/ui/tenants", "Tenants"),
    ("/ui/requests", "Requests"),
    ("/ui/decisions", "Decisions"),
    ("/ui/partitions", "Partitions"),
    ("/ui/gpu", "GPU"),
    ("/ui/profiles", "Profiles"),
    ("/ui/policy", "Policy"),
    ("/ui/what-if", "What-if"),
    ("/ui/replays", "Replays"),
    ("/ui/incidents", "Incidents"),
    ("/ui/alarms", "Alarms"),
    ("/ui/audit", "Audit"),
    ("/ui/settings", "Settings"),
)
"""What an operator is led to, in this order."""
THEMES = ("light", "dark")


class PageRoute(AdminRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
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
        # A form that was sent would be sent again.
        may_load_again=request.method == "GET" and status == HTTPStatus.OK,
        csv_address=lambda name: f"?{urlencode(_asked(request) | {'csv': name})}",
        **values,
    )
    return HTMLResponse(text, status, headers=HEADERS)


def sheet(
    request: Request,
    csv: str,
    /,
    template: str = "sheet.html",
    status: int = 200,
    *,
    title: str,
    tables: Sequence[Table],
    **values: object,
) -> Response:
    """A page of tables, or the one of them that `csv` names as a file. Raises: InvalidValueError."""
    if csv:
        return csv_of(tables, csv, file="-".join(filter(None, request.url.path.split("/")[2:])))
    unless_given: dict[str, object] = {"heading": title, "lines": (), "state": "quiet", "numbers": ()}
    given = {**unless_given, "shown": None, "picture": None, **values}
    return page(request, template, status, title=title, tables=tables, **given)


def _asked(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.query_params.items() if name != "csv"}


def part(template: str, **values: object) -> HTMLResponse:
    """A piece that a page asks for by itself."""
    return HTMLResponse(render(template, **values), headers=HEADERS)
