"""Request bodies that, when wrong, say which field is wrong and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

SENTENCE = "sentence"
"""The type of errors whose message needs no name of the field before it."""
_SHOWN_CHARACTERS = 60


class Body(BaseModel):
    """A JSON object with exactly the declared fields."""

    model_config = ConfigDict(extra="forbid")
    allowed: ClassVar[Mapping[str, str]] = {}
    """What each field may be, in words; fields that are objects of their own speak for themselves."""

    @model_validator(mode="before")
    @classmethod
    def _has_its_fields(cls, data: object) -> object:
        fields = cls.model_fields
        if not isinstance(data, dict):
            names = ", ".join(fields)
            text = f"the body must be a JSON object of {names}, sent with Content-Type: application/json"
            raise PydanticCustomError(SENTENCE, "{text}", {"text": text, "fields": names})
        for name in data:
            if name not in fields:
                text = f"{_shown(name)} is not a field here; allowed are {', '.join(fields)}"
                raise _sentence(_shown(name).strip('"'), text)
        for name, field in fields.items():
            if field.is_required() and name not in data:
                raise _sentence(name, f"{name} is missing; allowed are {cls.allowed[name]}")
        return data

    @field_validator("*", mode="wrap")
    @classmethod
    def _is_allowed(cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:  # noqa: ANN401
        name = info.field_name or ""
        if isinstance(value, float) and value.is_integer() and _is_whole(cls.model_fields[name].annotation):
            value = int(value)  # JSON has only one kind of number: 703.0 is 703
        if name not in cls.allowed:
            return handler(value)
        try:
            return handler(value)
        except ValidationError as error:
            if any(one["type"] == SENTENCE for one in error.errors(include_input=False)):
                raise  # an inner body has already said what is wrong
            text = f"{name} is {_shown(value)}; allowed are {cls.allowed[name]}"
            raise _sentence(name, text) from None


def _is_whole(annotation: object) -> bool:
    return int in (annotation, *get_args(annotation)) and float not in get_args(annotation)


def _sentence(field: str, text: str) -> PydanticCustomError:
    return PydanticCustomError(SENTENCE, "{text}", {"text": text, "field": field})


def _shown(value: object) -> str:
    """Show a value as JSON in ASCII: what the client sent, without what an answer could not hold."""
    text = f"{value:.15g}" if isinstance(value, float) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
