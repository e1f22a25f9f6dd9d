"""Puts a report together: header, table and figures in one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from plotly.offline import get_plotlyjs

from pdmuxd.daemon.replay.report.plots import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is on the page. Plain text, but for the table, which is HTML already."""

    title: str
    lead: str
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]
    caption: str
    """Of the table."""
    table_head: str
    table_body: str
    figures: Sequence[Figure]
    command: str
    version: str
    created_at: str


def assemble(page: Page) -> str:
    """The whole file as text."""
    assets = resources.files("pdmuxd.daemon.replay.report") / "assets"
    template = Template((assets / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(page.title),
        lead=escape(page.lead),
        notes=_notes(page.notes),
        facts="\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in page.facts),
        caption=escape(page.caption),
        table_head=page.table_head,
        table_body=page.table_body,
        figures="\n".join(_figure(index, figure) for index, figure in enumerate(page.figures)),
        figure_data=_for_script("[" + ",".join(str(figure.plot.to_json()) for figure in page.figures) + "]"),
        plotly=get_plotlyjs(),
        css=(assets / "page.css").read_text(encoding="utf-8"),
        js=(assets / "page.js").read_text(encoding="utf-8"),
        command=escape(page.command),
        version=escape(page.version),
        created_at=escape(page.created_at),
    )


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="note">{items}</ul>' if items else ""


def _figure(index: int, figure: Figure) -> str:
    title = escape(figure.title)
    return (
        f'<h2>{title}</h2>\n<p class="caption">{escape(figure.caption)}</p>\n'
        f'<figure><div class="plot" id="figure-{index}" role="img" aria-label="{title}"></div></figure>'
    )


def _for_script(json_text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return json_text.replace("<", "\\u003c")
