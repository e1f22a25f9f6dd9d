"""The site's links: what mkdocs is told of each page. `make docs` builds the whole."""

from __future__ import annotations

import importlib.util
import logging
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / ".ci" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(site: ModuleType, uri: str, markdown: str) -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    return str(site.on_page_markdown(markdown, page=page))


@pytest.mark.parametrize(
    ("uri", "link", "expected"),
    [
        ("index.md", "[a](docs/api.md#readers)", "[a](api.md#readers)"),
        ("index.md", "![a](docs/images/first-run.svg)", "![a](images/first-run.svg)"),
        ("index.md", "[a](docs/decisions/)", "[a](decisions/README.md)"),
        ("api.md", "[a](run.md)", "[a](run.md)"),
        ("measurements/README.md", "[a](../api.md)", "[a](../api.md)"),
        ("api.md", "[a](../CHANGELOG.md)", "[a](changelog.md)"),
        ("decisions/README.md", "[a](../../README.md)", "[a](../index.md)"),
        ("api.md", "[a](#here)", "[a](#here)"),
        ("index.md", "[the core](engine/core/types.py)", "the core"),
        ("index.md", "[a](https://keepachangelog.com/)", "[a](https://keepachangelog.com/)"),
        ("api.md", "`[a](nothing.md)`", "`[a](nothing.md)`"),
    ],
)
def test_a_link_leads_to_the_sites_page_when_the_repository_has_it(
    site: ModuleType, uri: str, link: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert shown(site, uri, link) == expected
    assert not caplog.records


def test_a_broken_link_is_a_warning(site: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    shown(site, "api.md", "[a](../engine/nothing.py)")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name.startswith("mkdocs."), "what --strict counts"
    assert record.getMessage() == "docs/api.md links to ../engine/nothing.py, which does not exist"


@pytest.mark.parametrize("tag", ['<script src="https://cdn/x.js">', '<link rel="x" href="//cdn/x.css">'])
def test_what_a_browser_would_fetch_is_a_warning(
    site: ModuleType, tag: str, caplog: pytest.LogCaptureFixture
) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="api.md"))
    site.on_post_page(tag, page=page)
    assert "cdn" in caplog.text


def test_a_list_is_one_when_it_follows_a_line_of_text(site: ModuleType) -> None:
    assert shown(site, "api.md", "Text:\n- one\n- two\n") == "Text:\n\n- one\n- two\n"
    assert shown(site, "api.md", "```\nText:\n- one\n```") == "```\nText:\n- one\n```"


def test_pages_outside_the_site_link_to_what_there_is(
    site: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    for path in [*ROOT.glob("tests/**/*.md"), *ROOT.glob("engine/**/*.md"), *ROOT.glob("systemd/*.md")]:
        for link in site.LINK.finditer(path.read_text()):
            site._of_site(link, str(path.relative_to(ROOT)), "index.md")
    assert not caplog.records


def test_the_navigation_names_each_page_once_and_no_page_that_is_gone(site: ModuleType) -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"^ +- .+: (\S+\.md)$", nav, re.MULTILINE)
    assert len(named) > 30
    assert sorted(set(named)) == sorted(named)
    made = set(site.PAGES.values())
    assert [page for page in named if page not in made and not (ROOT / "docs" / page).exists()] == []
