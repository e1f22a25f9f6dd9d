"""Templates as text, and the headers that keep a page to itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pdmuxd.tui.show import formats

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
ASSETS = {"pages.css": "text/css", "pages.js": "text/javascript"}
_FOLDER = files("pdmuxd.controlplane.web") / "assets"


@cache
def asset(name: str) -> bytes:
    """A file of ours, one of ASSETS."""
    return (_FOLDER / name).read_bytes()


@cache
def asset_url(name: str) -> str:
    """The address of an asset, which changes with its content."""
    return f"/ui/assets/{name}?v={hashlib.sha256(asset(name)).hexdigest()[:12]}"


def render(template: str, **values: object) -> str:
    """A page or a part of one. Raises: jinja2.UndefinedError, for a defect."""
    return _environment().get_template(template).render(values)


def moment(at: datetime | None) -> Markup:
    """An instant in UTC, which the browser's own clock shows by its zone."""
    if at is None:
        return Markup("-")
    # Neither text has anything to escape; a page has hundreds of them.
    return Markup(f'<time datetime="{at.isoformat()}">{at:%Y-%m-%d %H:%M:%S} UTC</time>')  # noqa: S704


def ms_with_unit(value_ms: float | None) -> str:
    """`85 ms`; of ten seconds and more `39.7s`, which has its unit already."""
    text = formats.ms(value_ms)
    return text if value_ms is None or text.endswith("s") else f"{text} ms"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("pdmuxd.controlplane.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for name in ("count", "rate", "ms", "percent", "ratio", "duration", "plain"):
        made.filters[name] = getattr(formats, name)
    made.filters |= {"moment": moment, "ms_with_unit": ms_with_unit}
    made.globals.update({"asset_url": asset_url, "pdmuxd_version": version("pdmuxd")})
    return made
