"""Compares what SGLang has with the types that this package expects (`types/`).

A class is compared before anything is made of it: its methods with their parameters, its attributes by their
names. An object is compared with the values that it holds as well, and theirs in turn.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol, TypeAlias, Union, get_args, get_origin, get_type_hints

Annotation: TypeAlias = Any
"""A type as it stands in an annotation, for which Python has no type."""


def differences(name: str, found: object, expected: Annotation) -> Iterator[str]:
    """What is missing in an object, or is of another kind than `expected`: a line for each, with its name."""
    yield from _value(name, found, expected, set())


def _value(name: str, found: object, expected: Annotation, seen: set[tuple[int, object]]) -> Iterator[str]:
    origin: Any = get_origin(expected)
    if expected is Any or expected is object or (found is None and type(None) in get_args(expected)):
        return
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in get_args(expected) if kind is not type(None)]
        if len(kinds) == 1:
            yield from _value(name, found, kinds[0], seen)
    elif origin is type:
        yield from _class(name, found, get_args(expected)[0])
    elif origin is Callable or expected is Callable:
        if not callable(found):
            yield f"{name} cannot be called"
    elif _is_protocol(expected):
        if (id(found), expected) not in seen:
            seen.add((id(found), expected))
            yield from _members(name, found, expected, seen)
    elif not isinstance(found, origin or expected):
        kind = getattr(origin or expected, "__name__", expected)
        yield f"{name} is of the type {type(found).__name__}, not {kind}"


def _members(name: str, found: object, expected: type, seen: set[tuple[int, object]]) -> Iterator[str]:
    for member, method in _methods(expected).items():
        if member == "__init__":
            continue
        called = found if member == "__call__" else getattr(found, member, None)
        path = name if member == "__call__" else f"{name}.{member}"
        yield from _call(path, called, method, is_bound=True)
    for member, kind in _attributes(expected).items():
        try:
            value = getattr(found, member)
        except AttributeError:
            yield f"{name}.{member} is missing"
        except RuntimeError as error:  # a property whose value was not made yet
            yield f"{name}.{member} cannot be read: {error}"
        else:
            if value is not None or getattr(type(found), member, ...) is not None:  # else not set yet
                yield from _value(f"{name}.{member}", value, kind, seen)


def _class(name: str, found: object, expected: type) -> Iterator[str]:
    if not isinstance(found, type):
        yield f"{name} is no class"
        return
    for member, method in _methods(expected).items():
        if member == "__init__":
            yield from _call(name, found, method, is_bound=True)
        else:
            is_bound = isinstance(inspect.getattr_static(found, member, None), classmethod)
            yield from _call(f"{name}.{member}", getattr(found, member, None), method, is_bound=is_bound)
    for member in _attributes(expected):
        if not _mentions(found, member):
            yield f"{name}.{member} is missing"


def _call(name: str, found: object, expected: Callable[..., object], *, is_bound: bool) -> Iterator[str]:
    """Whether `found` can be called with the parameters of `expected`."""
    if found is None:
        yield f"{name} is missing"
        return
    if not callable(found):
        yield f"{name} cannot be called"
        return
    wanted = list(inspect.signature(expected).parameters.values())[1:]
    by_position = [None] * (not is_bound)
    by_name: dict[str, None] = {}
    has_others = False
    for parameter in wanted:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            by_position.append(None)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            has_others = True
        elif parameter.kind is not parameter.VAR_KEYWORD:
            by_name[parameter.name] = None
    try:
        signature = inspect.signature(found)
        (signature.bind_partial if has_others else signature.bind)(*by_position, **by_name)
    except TypeError as error:
        call = f"{name.rpartition('.')[2]}({_given(wanted)})"
        yield f"{name}{_short_signature(found)} is called as {call}: {error}"
    except ValueError:
        return  # written in C, and says nothing about itself


def _given(parameters: list[inspect.Parameter]) -> str:
    return ", ".join(p.name if p.kind is p.POSITIONAL_ONLY else f"{p.name}=" for p in parameters)


def _short_signature(found: Callable[..., object]) -> str:
    return f"({', '.join(inspect.signature(found).parameters)})"


def _is_protocol(kind: object) -> bool:
    return isinstance(kind, type) and getattr(kind, "_is_protocol", False)


def _own(expected: type) -> Iterator[type]:
    """The parts of a Protocol, without what Python itself gives to each."""
    return (part for part in reversed(expected.__mro__) if part is not Protocol and _is_protocol(part))


@cache
def _methods(expected: type) -> dict[str, Callable[..., object]]:
    found: dict[str, Callable[..., object]] = {}
    for part in _own(expected):
        for name, member in vars(part).items():
            if isinstance(member, (types.FunctionType, classmethod)):
                method = member.__func__ if isinstance(member, classmethod) else member
                if method.__module__ == part.__module__ and name != "__subclasshook__":
                    found[name] = method
    return found


@cache
def _attributes(expected: type) -> dict[str, Annotation]:
    hints = {name: kind for name, kind in get_type_hints(expected).items() if not name.startswith("__")}
    for part in _own(expected):
        for name, member in vars(part).items():
            if isinstance(member, property) and member.fget is not None:
                hints[name] = get_type_hints(member.fget)["return"]
    return {name: kind for name, kind in hints.items() if name != "_is_protocol"}


def _mentions(found: type, member: str) -> bool:
    """Whether a class has an attribute, says that its objects have it, or has code that reads or sets it."""
    return (
        hasattr(found, member)
        or any(member in vars(part).get("__annotations__", ()) for part in found.__mro__)
        or member in _names_in_code(found)
    )


@cache
def _names_in_code(found: type) -> frozenset[str]:
    """The names of attributes in the code of a class and of those that it derives from."""
    names: set[str] = set()
    for part in found.__mro__:
        for member in vars(part).values():
            method = inspect.unwrap(member) if callable(member) else getattr(member, "__func__", member)
            method = method.fget if isinstance(method, property) else method
            code = getattr(method, "__code__", None)
            waiting = [code] if code is not None else []
            while waiting:
                code = waiting.pop()
                names.update(code.co_names)
                waiting += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    return frozenset(names)
