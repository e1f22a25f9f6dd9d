"""Forms of our own pages: what was typed, and that it was typed here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError
from starlette.requests import Request

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.database.audit import WHY_ALLOWED, WHY_MAX
from pdmuxd.controlplane.database.callers import acting
from pdmuxd.controlplane.web.sessions import Session
from pdmuxd.engine.core.errors import InvalidValueError, KeyScopeError

FORM_TOKEN = "form_token"  # noqa: S105 - the name of a field
MOST_FIELDS = 50
MOST_BYTES = 64 * 1024


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises: InvalidValueError."""
    body = await request.body()
    if len(body) > MOST_BYTES:
        raise InvalidValueError("body", f"the form has {len(body)} bytes; allowed are {MOST_BYTES}")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InvalidValueError("body", "the body is not a form of at most 50 fields in UTF-8") from None
    return dict(pairs)


def is_from_here(request: Request) -> bool:
    """Whether a page of this very address sent it, as far as the browser says."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def require_own_form(request: Request, form: dict[str, str], session: Session | None) -> None:
    """Refuse a form of another site. Without a login there was a token, which no other site has.

    Raises: KeyScopeError.
    """
    if session is None:
        return
    if not is_from_here(request) or not session.knows_form(form.get(FORM_TOKEN, "")):
        raise KeyScopeError("the form is not one of this login: load the page again and send it once more")


def acting_with(request: Request, form: Mapping[str, str]) -> AbstractContextManager[None]:
    """Make changes in the name and for the reason of who sent a form. Raises: InvalidValueError."""
    why = form.get("why", "").strip()
    if len(why) > WHY_MAX or not why.isprintable():
        raise InvalidValueError("why", f"why is {why[:40]!a}; allowed are {WHY_ALLOWED}")
    return acting(caller_of(request.scope), why or None)


def number_of(typed: str) -> float | str:
    """A number, with either decimal mark; what is none stays as it was typed, for whoever checks it."""
    try:
        return float(typed.strip().replace(",", "."))
    except ValueError:
        return typed.strip()


def refused(error: ValidationError, default: str) -> InvalidValueError:
    """What is wrong with the first field that is, named as REST names it."""
    found = error.errors(include_url=False)[0]
    field = str(found["loc"][0]) if found["loc"] else default
    return InvalidValueError(field, str(found["msg"]))


def version_of(form: Mapping[str, str]) -> int:
    """The version that a form was loaded with. Raises: InvalidValueError."""
    version = form.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 18):
        raise InvalidValueError("version", "version is missing: load the form again")
    return int(version)
