"""Reports on pages: only plain files of one folder, and nothing of the login for their scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from browsers import Browser
from stores import AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web import reports
from pdmuxd.controlplane.web.reports import Reports
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError

PAGE = "<!doctype html><title>Azure &amp; more: 3 policies</title><script>1</script>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "reports"
    made.mkdir()
    (made / "monday.html").write_text(PAGE)
    (tmp_path / "secret.html").write_text("the token")
    (made / "link.html").symlink_to(tmp_path / "secret.html")
    (made / "folder.html").mkdir()
    os.mkfifo(made / "pipe.html")
    (made / ".hidden.html").write_text(PAGE)
    (made / "results.json").write_text("{}")
    (made / "no title.html").write_text("x")
    return made


async def test_a_report_is_listed_by_its_title_and_opened_in_a_sandbox(
    control_plane: ControlPlane, folder: Path
) -> None:
    browser = Browser(AdminCalls(control_plane, reports=folder))
    assert (await browser.get("/ui/reports/monday.html")).status_code == 303, "only who has logged in"
    await browser.log_in()
    page = (await browser.get("/ui/replays")).text
    assert '<a href="/ui/reports/monday.html">monday.html</a>' in page
    assert "Azure &amp; more: 3 policies" in page
    opened = await browser.get("/ui/reports/monday.html")
    assert (opened.status_code, opened.text) == (200, PAGE)
    policy = opened.headers["Content-Security-Policy"].split("; ")
    assert policy[:2] == ["sandbox allow-scripts allow-downloads", "default-src 'none'"]
    assert "allow-same-origin" not in policy[0]
    assert opened.headers["X-Content-Type-Options"] == "nosniff"


def test_only_plain_files_are_listed(folder: Path) -> None:
    assert [one.name for one in Reports(folder).newest_first()] == ["monday.html"]
    assert Reports(folder / "none").newest_first() == Reports(None).newest_first() == []


@pytest.mark.parametrize("name", ["link.html", "folder.html", "pipe.html", "nobody.html"])
def test_what_is_no_plain_file_is_not_there(folder: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match=name):
        Reports(folder).read(name)


@pytest.mark.parametrize(
    "name",
    [
        "../secret.html",
        "..%2fsecret.html",
        ".hidden.html",
        "results.json",
        "a/b.html",
        "no title.html",
        "a\0.html",
    ],
)
def test_no_name_leads_elsewhere(folder: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match="allowed are letters"):
        Reports(folder).read(name)


async def test_no_address_leads_elsewhere(control_plane: ControlPlane, folder: Path) -> None:
    browser = Browser(AdminCalls(control_plane, reports=folder))
    await browser.log_in()
    for path in ("..%2Fsecret.html", "%2E%2E%2Fsecret.html", "..%5csecret.html", "link.html"):
        answer = await browser.get(f"/ui/reports/{path}")
        assert answer.status_code in (404, 422), path
        assert "the token" not in answer.text


def test_a_file_that_is_too_large_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_BYTES", len(PAGE) - 1)
    assert Reports(folder).newest_first() == []
