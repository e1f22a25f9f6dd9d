"""YAML files of configurations: values with the lines on which they stand, so that errors can be found.

Read from the parser's events and not by a loader, for a loader expands aliases (a kilobyte may become
gigabytes), takes the last of two equal keys, and forgets the lines. Scalars are those of YAML 1.2's core
schema: `yes` is a text and `010` is refused, where YAML 1.1 has a truth value and eight.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from pdmuxd.engine.core.errors import InvalidValueError

MOST_BYTES = 4 << 20
"""Some 14,000 tenants, and what `admin.max_body_bytes` lets in unless it is set; read in ten seconds."""
MOST_DEPTH = 16
"""A configuration is six deep."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LOOKS_LIKE_A_NUMBER = re.compile(
    r"[-+]?(0[0-9xob_]|[0-9]+[_:]|\.[0-9]|[0-9]+\.$).*|[-+]?\.(inf|nan)", re.IGNORECASE
)
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "true": True, "false": False}

TENANTS = "tenants"
Path = tuple[str, ...]


@dataclass(slots=True)
class Document:
    """One document: plain values, and by the path to each the line on which it begins."""

    source: str
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)

    def where(self, path: Path) -> str:
        """`FILE:LINE` of what a path leads to, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.source}:{self.lines.get(path, 1)}"


def read_documents(text: bytes, source: str) -> Iterator[Document]:
    """Each document of a file that is not empty. Raises: InvalidValueError that begins with `FILE:LINE:`."""
    if len(text) > MOST_BYTES:
        raise InvalidValueError("file", f"{source} has {len(text)} bytes; allowed are at most {MOST_BYTES}")
    try:
        events = yaml.parse(text, Loader=_LOADER)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                document = Document(source)
                document.value = _Builder(events, document).value(next(events), ())
                if document.value is not None:
                    yield document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        line = 1 if mark is None else mark.line + 1
        raise InvalidValueError("file", f"{source}:{line}: this is not YAML: {said}") from error


class _Builder:
    def __init__(self, events: Iterator[Any], document: Document) -> None:
        self._events = events
        self._document = document

    def value(self, event: Any, path: Path) -> Any:  # noqa: ANN401 - the library's events, any value
        self._document.lines[path] = event.start_mark.line + 1
        if len(path) > MOST_DEPTH:
            raise self._error(event, f"it is nested deeper than {MOST_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event, f"*{event.anchor} is an alias; write out what it stands for")
        if event.tag is not None:
            raise self._error(event, f"{event.tag[:60]} is a tag; allowed are values without tags")
        if isinstance(event, yaml.ScalarEvent):
            return event.value if not event.implicit[0] else self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._mapping(path)

    def _sequence(self, path: Path) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self.value(event, (*path, str(len(found)))))
        return found

    def _mapping(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                raise self._error(event, "this is no name; allowed are names, each with its value")
            name = str(event.value)
            if name in found:
                first = self._document.lines[*path, name]
                raise self._error(event, f"{name[:60]!r} is here twice; it stands on line {first} already")
            found[name] = self.value(next(self._events), (*path, name))
            self._document.lines[*path, name] = event.start_mark.line + 1
        return found

    def _scalar(self, event: Any) -> str | float | bool | None:  # noqa: ANN401
        text = str(event.value)
        if text.lower() in _WORDS and text in (text.lower(), text.title(), text.upper()):
            return _WORDS[text.lower()]
        if _NUMBER.fullmatch(text):
            return _number(text)
        if _LOOKS_LIKE_A_NUMBER.fullmatch(text):
            raise self._error(
                event, f"{text[:60]} is no number; write it in decimal digits, or as a text in quotes"
            )
        return text

    def _error(self, event: Any, text: str) -> InvalidValueError:  # noqa: ANN401
        return InvalidValueError("file", f"{self._document.source}:{event.start_mark.line + 1}: {text}")


def _number(text: str) -> str | float:
    """An int where it is written as one; of hundreds of digits the text, which no field allows."""
    if len(text) > 40:
        return text
    return json.loads(text.removeprefix("+"))  # type: ignore[no-any-return]


class Whole:
    """One configuration out of the documents of all files; tenants may be spread over them."""

    def __init__(self, documents: Iterable[Document]) -> None:
        """Raises: InvalidValueError for what is in two documents."""
        self.value: dict[str, Any] = {}
        self._owners: dict[Path, Document] = {}
        for document in documents:
            if not isinstance(document.value, dict):
                where = document.where(())
                raise InvalidValueError(
                    "file", f"{where}: this is no configuration; allowed are tenants, policy and prices"
                )
            for name, value in document.value.items():
                if name == TENANTS and isinstance(value, dict) and isinstance(self.value.get(name, {}), dict):
                    tenants = self.value.setdefault(name, {})
                    for tenant in value:
                        self._own((name, tenant), document, is_new=tenant not in tenants)
                    tenants |= value
                elif name == TENANTS and value is None:
                    continue
                else:
                    self._own((name,), document, is_new=name not in self.value)
                    self.value[name] = value

    def where(self, path: Path) -> str:
        """`FILE:LINE` of what a path leads to."""
        owner = self._owners.get(path[:2]) or self._owners.get(path[:1])
        return "" if owner is None else owner.where(path)

    def _own(self, path: Path, document: Document, *, is_new: bool) -> None:
        if not is_new:
            first = self.where(path)
            raise InvalidValueError(
                "file",
                f"{document.where(path)}: {'.'.join(path)} is here twice; it stands at {first} already",
            )
        self._owners[path] = document
