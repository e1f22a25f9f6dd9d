"""The pages for a browser."""

from __future__ import annotations

import re

import pytest
from stores import AdminCalls

from pdmuxd.controlplane.api import browser


async def test_the_documentation_loads_nothing_from_elsewhere_when_it_is_opened(call: AdminCalls) -> None:
    page = (await call("GET", "/docs")).text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {"/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"} <= set(loaded)
    assert "//" not in "".join(loaded)
    for path, kind in (("/docs/swagger-ui-bundle.js", "javascript"), ("/docs/swagger-ui.css", "css")):
        answer = await call("GET", path)
        assert kind in answer.headers["Content-Type"]
        assert "swagger-ui" in answer.text


async def test_a_problem_says_so_when_swagger_is_not_installed(
    call: AdminCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "ASSETS_PACKAGE", "a_package_that_is_not_there")
    answer = await call("GET", "/docs/swagger-ui.css")
    assert answer.status_code == 503
    assert "a_package_that_is_not_there" in answer.json()["detail"]


async def test_the_first_page_says_what_is_where_when_it_is_opened(call: AdminCalls) -> None:
    page = (await call("GET", "/")).text
    for said in ('href="/ui"', 'href="/docs"', 'href="/metrics"', "/api/v1/events"):
        assert said in page
