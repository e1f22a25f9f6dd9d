"""Makes one site of docs/ and of the pages beside it (README, CONTRIBUTING, ...), for mkdocs.

A link out of these pages, to a file of the repository, becomes that file's name: the site stands alone. One
that leads nowhere is a warning, and so is anything that a browser would have to fetch from elsewhere; `mkdocs
build --strict` fails on both.
"""

from __future__ import annotations

import logging
import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "ROADMAP.md": "roadmap.md",
    "SECURITY.md": "security.md",
}
"""Pages of the repository's root, and their names in the site."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
LIST_AFTER_TEXT = re.compile(r"^(?![-\d\s|#>])(.+)\n(?=(?:- |\d+\. ))", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FETCHED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")

log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 - mkdocs' objects
    """Add the pages of the root."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Turn links of the repository into links of the site."""
    names = {name: source for source, name in PAGES.items()}
    uri = page.file.src_uri
    source = names.get(uri, f"docs/{uri}")
    kept: list[str] = []

    def put_aside(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\0{len(kept) - 1}\0"

    text = LINK.sub(lambda link: _of_site(link, source, uri), FENCED.sub(put_aside, markdown))
    # mkdocs wants an empty line before a list, where other readers of Markdown do without.
    text = LIST_AFTER_TEXT.sub(r"\1\n\n", text)
    return re.sub("\0(\\d+)\0", lambda place: kept[int(place[1])], text)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Warn of what is not in the site itself."""
    for address in FETCHED.findall(output):
        log.warning("%s would fetch %s", page.file.src_uri, address)
    return output


def _of_site(link: re.Match[str], source: str, uri: str) -> str:
    image, text, target = link.groups()
    path, hash_, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return link[0]
    wanted = os.path.normpath(Path(source).parent / path)
    if not (ROOT / wanted).exists():
        log.warning("%s links to %s, which does not exist", source, target)
    if (ROOT / wanted).is_dir() and (ROOT / wanted / "README.md").exists():
        wanted += "/README.md"
    found = PAGES.get(wanted) or (wanted.removeprefix("docs/") if wanted.startswith("docs/") else None)
    if found is None:
        return text
    return f"{image}[{text}]({os.path.relpath(found, Path(uri).parent)}{hash_}{anchor})"
