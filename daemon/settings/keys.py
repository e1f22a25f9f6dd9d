"""The settings as a flat list of dotted keys, read off the model: names, defaults, what is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from pdmuxd.daemon.settings.model import Settings

UNITS = {"_s": "seconds", "_bytes": "bytes", "_days": "days"}
SECRET_KEYS = frozenset({"database_url"})
"""Keys whose value may hold a credential; it is masked wherever it is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting as it is shown to people."""

    name: str
    """Dotted, as in `data.port`."""
    field: FieldInfo
    unit: str | None
    default: object
    """None if it depends on the machine or on other settings; `summary` says how."""

    @property
    def summary(self) -> str:
        return self.field.description or ""

    @property
    def allowed(self) -> str:
        return _allowed(self.field)


@cache
def all_keys() -> tuple[Key, ...]:
    """Every setting, in the order of the model."""
    return tuple(_keys_of(Settings, ""))


@cache
def key_names() -> frozenset[str]:
    """The dotted names of all settings."""
    return frozenset(key.name for key in all_keys())


@cache
def section_names() -> tuple[str, ...]:
    """The dotted names of the tables of pdmuxd.toml."""
    parts = [key.name.split(".") for key in all_keys()]
    return tuple(dict.fromkeys(".".join(part[:depth]) for part in parts for depth in range(1, len(part))))


def _keys_of(model: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _keys_of(annotation, f"{prefix}{name}.")
            continue
        yield Key(
            name=prefix + name,
            field=field,
            unit=next((unit for ending, unit in UNITS.items() if name.endswith(ending)), None),
            default=field.default,
        )


def _allowed(field: FieldInfo) -> str:
    extra: JsonDict = {}
    if callable(field.json_schema_extra):
        field.json_schema_extra(extra)
    else:
        extra.update(field.json_schema_extra or {})
    if "allowed" in extra:
        return str(extra["allowed"])
    annotation, metadata = _bare(field.annotation, list(field.metadata))
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        low = next(item.ge for item in metadata if isinstance(item, Ge))
        high = next(item.le for item in metadata if isinstance(item, Le))
        kind = "a whole number" if annotation is int else "a number"
        return f"{kind} from {low} to {high}"
    if annotation is Path:
        return "a path"
    return "text"


def _bare(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - types of types
    """Strip `| None` and Annotated from a type, collecting the latter's constraints."""
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    if hasattr(annotation, "__metadata__"):
        for item in annotation.__metadata__:
            metadata.extend(item.metadata if isinstance(item, FieldInfo) else [item])
        return _bare(annotation.__origin__, metadata)
    return annotation, metadata
