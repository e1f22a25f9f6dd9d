"""What the check says of a library that has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from pdmuxd.engine.sglang.api.check import differences


class Pool(Protocol):
    size: int

    def free(self, slot: int, /) -> None: ...


class Engine(Protocol):
    pool: Pool
    queue: list[str]
    last: str | None
    on_idle: Callable[[], None]
    anything: Any
    _private: bool

    def __init__(self, name: str, /, *, size: int) -> None: ...

    @property
    def layers(self) -> int:
        raise NotImplementedError

    def run(self, batch: object, /, *, budget: int | None = None) -> int: ...

    @classmethod
    def make(cls, kind: str, /) -> Engine: ...


class RealPool:
    def __init__(self) -> None:
        self.size = 8

    def free(self, slot):
        pass


class RealEngine:
    limit = 3

    def __init__(self, name, *, size, verbose=False):
        self.pool = RealPool()
        self.queue = []
        self.last = None
        self.on_idle = print
        self.anything = object()
        self._private = False

    @property
    def layers(self):
        return 4

    def run(self, batch, sizes=None, budget=None):
        return 1

    @classmethod
    def make(cls, kind):
        return cls(kind, size=1)


@pytest.fixture
def real():
    return RealEngine("a", size=1)


def of_object(found):
    return list(differences("Engine", found, Engine))


def of_class(found):
    return list(differences("Engine", found, type[Engine]))


def test_nothing_is_said_when_all_is_as_expected(real):
    assert of_object(real) == []
    assert of_class(RealEngine) == []


def test_a_missing_attribute_is_named_with_its_path(real):
    del real.pool.size
    del real._private
    assert of_object(real) == ["Engine.pool.size is missing", "Engine._private is missing"]


def test_a_value_of_another_kind_is_named(real):
    real.queue, real.last, real.on_idle = (), 3, "no function"
    assert of_object(real) == [
        "Engine.queue is of the type tuple, not list",
        "Engine.last is of the type int, not str",
        "Engine.on_idle cannot be called",
    ]


def test_a_value_may_be_missing_only_where_the_type_says_so(real):
    real.queue = real.last = None
    assert of_object(real) == ["Engine.queue is of the type NoneType, not list"]


def test_what_is_not_set_yet_is_not_compared(real, monkeypatch):
    monkeypatch.setattr(RealEngine, "queue", None, raising=False)
    real.queue = None
    assert of_object(real) == []


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (lambda self: 0, "Engine.run() is called as run(batch, budget=): too many positional arguments"),
        (
            lambda self, batch, *, limit=None: 0,
            "Engine.run(batch, limit) is called as run(batch, budget=): got an unexpected keyword argument "
            "'budget'",
        ),
        (
            lambda self, batch, stream, budget=None: 0,
            "Engine.run(batch, stream, budget) is called as run(batch, budget=): "
            "missing a required argument: 'stream'",
        ),
        (None, "Engine.run is missing"),
        (5, "Engine.run cannot be called"),
    ],
)
def test_a_method_with_other_parameters_is_named_with_both(real, monkeypatch, run, says):
    monkeypatch.setattr(RealEngine, "run", run)
    assert of_object(real) == [says]
    assert [line.replace("(self, ", "(").replace("(self)", "()") for line in of_class(RealEngine)] == [says]


def test_what_objects_alone_have_is_found_in_the_code_of_their_class():
    class Later:
        run = RealEngine.run
        make = vars(RealEngine)["make"]
        on_idle = anything = None

        def __init__(self, name, size):
            self.pool, self._private = RealPool(), False
            self.start = lambda: self.queue

        def layers(self):
            return 4

    assert of_class(Later) == ["Engine.last is missing"]


def test_what_a_base_class_or_a_declaration_has_counts():
    @dataclass
    class Base:
        pool: object
        queue: list[str]

    class Derived(Base):
        last: str
        _private: bool
        run, make, layers = RealEngine.run, vars(RealEngine)["make"], RealEngine.layers
        on_idle = anything = None

        def __init__(self, name, size):
            super().__init__(RealPool(), [])

    assert of_class(Derived) == []


def test_a_class_whose_objects_are_made_otherwise_is_named():
    class Other(RealEngine):
        def __init__(self, name):
            super().__init__(name, size=1)

    said = of_class(Other)
    assert len(said) == 1
    assert "Engine(name) is called as Engine(name, size=): " in said[0]


def test_what_is_no_class_is_named(real):
    assert of_class(real) == ["Engine is no class"]


class Copy(Protocol):
    def __call__(self, source: Sequence[int], /, *, flush: bool) -> None: ...


def test_functions_are_compared_like_methods():
    assert list(differences("copy", lambda source, flush: None, Copy)) == []
    assert list(differences("copy", lambda source: None, Copy)) == [
        "copy(source) is called as copy(source, flush=): got an unexpected keyword argument 'flush'"
    ]


def test_objects_that_hold_each_other_are_compared_once():
    class Node(Protocol):
        other: Node

    class RealNode:
        other: object

    a, b = RealNode(), RealNode()
    a.other, b.other = b, a
    globals()["Node"] = Node
    assert list(differences("a", a, Node)) == []
