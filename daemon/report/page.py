"""Puts a report together: header, table and figures in one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pdmuxd.daemon.report.plots import Figure
from pdmuxd.daemon.report.table import Cell, Table, text_of
from pdmuxd.tui.show import colours


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is on the page: plain text, which the template escapes."""

    title: str
    verdict: str
    """The verdict, in a sentence."""
    lead: str
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]
    caption: str
    """What is said of the table."""
    table: Table
    figures: Sequence[Figure]
    command: str
    version: str
    created_at: str


def assemble(page: Page) -> str:
    """The whole file as text."""
    environment = _environment()
    figure_data = "[" + ",".join(str(figure.plot.to_json()) for figure in page.figures) + "]"
    return environment.get_template("page.html").render(
        page=page,
        figure_data=_for_script(figure_data),
        plotly=Markup(get_plotlyjs()),  # noqa: S704 - the library's own source
        css=Markup(environment.get_template("page.css").render(colours=colours)),  # noqa: S704 - ours
        js=_asset("page.js"),
        swatch=_swatch,
        cell=_cell,
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("pdmuxd.daemon.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _asset(name: str) -> Markup:
    environment = _environment()
    assert environment.loader is not None  # noqa: S101 - set above
    source, _, _ = environment.loader.get_source(environment, name)
    return Markup(source)  # noqa: S704 - a file of this package


def _swatch(colour: str | None) -> Markup:
    if colour is None:
        return Markup("")
    return Markup('<span class="swatch" style="background:{}"></span>').format(colour)


def _cell(cell: str | Cell) -> Markup:
    if isinstance(cell, str) or cell.is_met is None:
        return Markup("<td>{}</td>").format(text_of(cell))
    kind, mark, said = ("met", "✓", "reached") if cell.is_met else ("missed", "✗", "missed")
    shown = Markup('<td class="{}"><span class="mark" role="img" aria-label="{}">{}</span>{}</td>')
    return shown.format(kind, said, mark, cell.text)


def _for_script(json_text: str) -> Markup:
    """JSON that cannot end the script element it stands in."""
    return Markup(json_text.replace("<", "\\u003c"))  # noqa: S704 - nothing in it opens a tag
