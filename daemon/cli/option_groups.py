"""Groups of options: a command takes one dataclass instead of a parameter for every option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

Result = TypeVar("Result")


def with_option_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """The command as typer reads it: the fields of each dataclass among its parameters are options.

    Every field but those of the plain parameters needs a default, as options do.
    """
    parameters = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {name: hints[name] for name in parameters if is_dataclass(hints.get(name))}

    @wraps(command)
    def flat(**given: object) -> Result:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    options = [
        option
        for name, parameter in parameters.items()
        for option in (_options_of(groups[name]) if name in groups else [_plain(parameter, hints[name])])
    ]
    # Those without a default come first, as in any signature.
    options.sort(key=lambda one: one.default is not inspect.Parameter.empty)
    flat.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in options}
    return flat


def _options_of(group: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )


def _plain(parameter: inspect.Parameter, annotation: object) -> inspect.Parameter:
    return parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY)
