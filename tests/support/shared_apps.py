"""The admin application, built once for all tests that give it the same options, and as new for each.

Building one takes half a second of a core, far longer than most tests. What a test gives it (its control
plane, its telemetry) is looked up at each use; what the application keeps of its own (logins, failed ones,
answers to repeated calls) is put back to what it was when it was built.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import State

from pdmuxd.controlplane.admin_app import build_admin_app
from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.credentials import digest

ADMIN_TOKEN = "the-admin-token"
STANDING_IN = frozenset(
    {
        "actions",
        "history",
        "known_costs",
        "predictors",
        "quarantine",
        "reader_token_sha256",
        "replays",
        "settings",
        "telemetry",
        "used",
    }
)
"""Options of which the application keeps no part when it is built: a stand-in can take their place."""

_building: list[bool] = []


class _StandIn:
    """Whatever `get` returns at the time. While the application is built its parts are stand-ins as well."""

    def __init__(self, get: Callable[[], Any]) -> None:
        self.__dict__["_get"] = get

    def __getattr__(self, name: str) -> Any:
        get = self.__dict__["_get"]
        return _StandIn(lambda: getattr(get(), name)) if _building else getattr(get(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        assert not _building, f"{name} would be set of one test's object only"
        setattr(self.__dict__["_get"](), name, value)

    def __call__(self, *args: Any, **options: Any) -> Any:
        assert not _building, "its answer would be one test's, and be kept for all"
        return self.__dict__["_get"]()(*args, **options)


class SharedApp:
    """One application, for one set of options' names."""

    def __init__(self, names: frozenset[str]) -> None:
        self.given: dict[str, Any] = {}
        """By whoever uses it now."""
        self.is_lent = False
        _building.append(True)
        try:
            self.app = build_admin_app(
                self._stand_in("control_plane"),
                engine_status=lambda: self.given["engine_status"](),
                admin_token_sha256=digest(ADMIN_TOKEN),
                **{name: self._stand_in(name) for name in names},
            )
        finally:
            _building.pop()
        self.authenticator: Any = self.app.user_middleware[0].kwargs["authenticator"]
        self._new = list(_mutable_parts(self.app))

    def _stand_in(self, name: str) -> Any:
        return _StandIn(lambda: self.given[name])

    def renew(self) -> None:
        """Forget all that it has kept since it was built."""
        for put_back in self._new:
            put_back()


_apps: dict[frozenset[str], SharedApp] = {}


def can_share(options: dict[str, Any]) -> bool:
    """Whether an application with these options may be shared."""
    return options.keys() <= STANDING_IN


def shared_app(behind: dict[str, Any], options: dict[str, Any]) -> SharedApp:
    """The application for these options, with what is behind it.

    It is as new, unless that is the control plane of the last one: a test has asked for it twice.
    """
    names = frozenset(options)
    if names not in _apps:
        _apps[names] = SharedApp(names)
    found = _apps[names]
    if found.given.get("control_plane") is not behind["control_plane"]:
        found.renew()
    found.given = behind | options
    return found


@contextmanager
def lent_app(behind: dict[str, Any], options: dict[str, Any]) -> Iterator[FastAPI]:
    """The same for a server that uses it meanwhile; a second one beside it gets one of its own."""
    names = frozenset(options)
    is_taken = names in _apps and _apps[names].is_lent
    lent = SharedApp(names) if is_taken else shared_app(behind, options)
    lent.given, lent.is_lent = behind | options, True
    try:
        yield lent.app
    finally:
        lent.is_lent = False


@functools.cache
def _command_line_app() -> SharedApp:
    return SharedApp(frozenset())


def app_of_command(
    control_plane: ControlPlane, *, admin_token_sha256: str, owner: Caller, **behind: Any
) -> FastAPI:
    """What `build_admin_app` is to a command that works on the database itself, as new for each."""
    shared = _command_line_app()
    shared.renew()
    shared.given = {"control_plane": control_plane} | behind
    shared.authenticator._token_sha256 = admin_token_sha256
    shared.authenticator._owner = owner
    return shared.app


_CONTAINERS = (dict, list, set, deque)
_ENDS = (type, types.ModuleType, types.CodeType, _StandIn, SharedApp)


def _mutable_parts(app: FastAPI) -> Iterator[Callable[[], None]]:
    """What puts each part back that pdmuxd's own objects keep, wherever the application refers to them."""
    seen: dict[int, Any] = {}
    left: list[Any] = [app]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, _ENDS):
            continue
        seen[id(one)] = one
        if isinstance(one, types.FunctionType):
            # Not its module's names.
            left += [
                *(one.__closure__ or ()),
                *(one.__defaults__ or ()),
                *(one.__kwdefaults__ or {}).values(),
            ]
            for cell in (one.__closure__ or ()) if _is_ours(one.__module__) else ():
                yield functools.partial(setattr, cell, "cell_contents", cell.cell_contents)
                yield from _put_back(cell.cell_contents)
            continue
        if _is_ours(type(one).__module__) or isinstance(one, State):
            kept = getattr(one, "__dict__", {})
            yield from _put_back(kept)
            for value in kept.values():
                yield from _put_back(value)
        left += gc.get_referents(one)


def _is_ours(module: str | None) -> bool:
    return (module or "").startswith("pdmuxd.")


def _put_back(value: Any) -> Iterator[Callable[[], None]]:
    if isinstance(value, _CONTAINERS):
        yield functools.partial(_refill, value, value.copy())


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, dict | set):
        container.update(content)
    else:
        container.extend(content)
