"""Long lists in pages: `limit`, `after`, and a `Link` header that leads on."""

from __future__ import annotations

from fastapi import Request, Response

PAGE_MAX = 500
"""Tenants that are answered in about 40 ms."""


def link_next(request: Request, response: Response, after: str | None) -> None:
    """Say where the list goes on; with None it has ended."""
    if after is not None:
        target = request.url.include_query_params(after=after)
        response.headers["Link"] = f'<{target.path}?{target.query}>; rel="next"'
