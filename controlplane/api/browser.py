"""The pages for people with a browser: what is where, and the REST reference. Neither needs the internet."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pdmuxd.controlplane.api.auth import DOCS_ASSETS, DOCS_PATH, HOME_PATH, OPENAPI_PATH
from pdmuxd.controlplane.api.problems import problem

ASSETS_PACKAGE = "fastapi_offline"
"""Ships Swagger UI's files; of it nothing else is used."""
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css"}
CACHED = {"Cache-Control": "private, max-age=86400"}
NO_ICON = "data:,"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_HOME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><title>pdmuxd {version}: admin address</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 44em; margin: 2em auto; padding: 0 1em }}
dt {{ font-weight: 600; margin-top: .7em }} dd {{ margin: 0 }} code {{ font-family: ui-monospace, monospace }}
</style>
</head>
<body>
<h1>pdmuxd {version}</h1>
<p>The admin address of a daemon that keeps tenants' latency targets on one GPU.</p>
<dl>
<dt><a href="/ui">/ui</a></dt><dd>What happens now and what was: the overview, with a login of its own.
In a terminal it is <code>pdmuxd top</code>.</dd>
<dt><a href="{docs}">{docs}</a></dt><dd>The REST interface: every route, tried out with the token.</dd>
<dt><a href="{openapi}">{openapi}</a></dt><dd>The same as an OpenAPI document.</dd>
<dt><code>/api/v1</code></dt><dd>Tenants, keys, targets, profiles, the engine; <code>/api/v1/events</code> is
the event stream. Each call needs <code>Authorization: Bearer TOKEN</code>.</dd>
<dt><a href="/metrics">/metrics</a></dt><dd>For Prometheus.</dd>
<dt><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a></dt>
<dd>Whether the daemon lives; whether its engine serves.</dd>
</dl>
</body>
</html>
"""


def add_browser_pages(app: FastAPI) -> None:
    """Add `/`, `/docs` and the files that it loads. They are no part of the OpenAPI document."""
    home = _HOME.format(version=app.version, docs=DOCS_PATH, openapi=OPENAPI_PATH)

    async def show_home() -> HTMLResponse:
        return HTMLResponse(home, headers=_HEADERS)

    async def show_docs() -> HTMLResponse:
        script, style = DOCS_ASSETS
        return get_swagger_ui_html(
            openapi_url=OPENAPI_PATH,
            title=f"{app.title} {app.version}: REST",
            swagger_js_url=script,
            swagger_css_url=style,
            swagger_favicon_url=NO_ICON,
        )

    @cache
    def openapi() -> bytes:
        # Not all at once, which would keep Python's lock from the loop for 20 ms.
        pieces = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(app.openapi())
        return "".join(pieces).encode()

    def send_openapi(_request: Request) -> Response:
        # Not asynchronous: the framework calls it in a worker thread, since making it takes a second.
        return Response(openapi(), media_type="application/json")

    async def send_asset(request: Request) -> Response:
        found = _asset(request.url.path.rpartition("/")[2])
        if found is None:
            return problem(
                503, "unavailable", f"the package {ASSETS_PACKAGE} is missing: install pdmuxd anew"
            )
        media_type = MEDIA_TYPES[found.name[found.name.rindex(".") :]]
        return Response(found.read_bytes(), media_type=media_type, headers=CACHED)

    app.add_route(OPENAPI_PATH, send_openapi, include_in_schema=False)
    app.add_api_route(HOME_PATH, show_home, include_in_schema=False)
    app.add_api_route(DOCS_PATH, show_docs, include_in_schema=False)
    for path in DOCS_ASSETS:
        app.add_api_route(path, send_asset, include_in_schema=False)


def _asset(name: str) -> Traversable | None:
    try:
        found = files(ASSETS_PACKAGE) / "static" / name
    except ModuleNotFoundError:
        return None
    return found if found.is_file() else None
