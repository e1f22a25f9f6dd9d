"""What came back: JSON as dictionaries and lists that remember their version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pdmuxd.tui.client.api.errors import ForeignError

if TYPE_CHECKING:
    import httpx

API = "/api/v1"


class _Object(dict[str, Any]):
    etag: str | None = None


class _List(list[Any]):
    etag: str | None = None


def version_of(answer: object) -> int | None:
    """The version that an answer's ETag names, for `if_match`; None where the answer had none."""
    etag: str | None = getattr(answer, "etag", None)
    text = "" if etag is None else etag.strip('"')
    return int(text) if text.isdecimal() else None


def content_of(response: httpx.Response) -> Any:  # noqa: ANN401 - JSON
    """JSON decoded, other text as it is, None if there is nothing. Raises: ForeignError."""
    if not response.content:
        return None
    if "json" not in response.headers.get("Content-Type", ""):
        return response.text
    try:
        found = msgspec.json.decode(response.content)
    except (msgspec.MsgspecError, UnicodeError) as error:
        detail = f"an answer that is not understood: {error}"
        raise ForeignError(detail, status=response.status_code) from error
    if isinstance(found, (dict, list)):
        found = _Object(found) if isinstance(found, dict) else _List(found)
        found.etag = response.headers.get("ETag")
    return found


class Pages:
    """Goes from page to page of a list; the client that it is for sends what it is told."""

    def __init__(self, path: str, query: Mapping[str, object], items: str | None) -> None:
        self.path: str | None = path
        """What to ask for next; None at the end."""
        self.query: Mapping[str, object] = query
        self._items = items

    def read(self, response: httpx.Response) -> Iterator[Any]:
        """The entries of a page, after which `path` and `query` are those of the next one."""
        found = content_of(response)
        link = response.links.get("next", {}).get("url")
        cursor = None if isinstance(found, list) else _cursor(found)
        if link is not None:
            self.path, self.query = link.removeprefix(API), {}
        elif cursor is not None:
            self.query = {**self.query, cursor[0]: cursor[1]}
        else:
            self.path = None
        yield from found if self._items is None else found[self._items]


def _cursor(page: Mapping[str, Any]) -> tuple[str, object] | None:
    """`next_before` of a page is the next one's `before`."""
    for name in ("before", "after"):
        if page.get(f"next_{name}") is not None:
            return name, page[f"next_{name}"]
    return None
