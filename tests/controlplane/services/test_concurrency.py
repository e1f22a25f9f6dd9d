"""Changes from several threads and processes run one after the other; none is lost, none half done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date
from typing import Any

import pytest
from stores import opened, slo

from pdmuxd.controlplane.database import sqlite
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.engine.core.errors import ConflictError, StaleVersionError

WRITERS = 6


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run all calls at the same moment; the result of each, or what it raised of ours."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return call()
        except ConflictError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


@pytest.fixture(params=["one process", "several processes"])
def planes(request: pytest.FixtureRequest, url: str) -> Iterator[list[ControlPlane]]:
    """As several threads of a daemon share one, or each with connections of its own."""
    with ExitStack() as stack:
        if request.param == "one process":
            yield [stack.enter_context(opened(url))] * WRITERS
        else:
            yield [stack.enter_context(opened(url)) for _ in range(WRITERS)]


def test_exactly_one_edit_wins_when_all_expect_the_same_version(planes: list[ControlPlane]) -> None:
    planes[0].create_tenant("chat")
    for expected in range(1, 6):
        targets = [slo(0.010 + n / 1000) for n in range(WRITERS)]
        results = at_once(
            *(
                lambda p=p, t=t, v=expected: p.set_slo("chat", t, expected_version=v)
                for p, t in zip(planes, targets, strict=True)
            )
        )

        won = [result for result in results if not isinstance(result, Exception)]
        assert len(won) == 1
        assert all(isinstance(r, StaleVersionError) for r in results if isinstance(r, Exception))
        assert won[0] == planes[-1].get_slo("chat")
        assert won[0].version == expected + 1
        assert planes[-1].snapshot().version == expected + 1


def test_every_edit_has_a_version_of_its_own_when_none_is_expected(planes: list[ControlPlane]) -> None:
    planes[0].create_tenant("chat")
    results = at_once(*(lambda p=p: p.set_slo("chat", slo()) for p in planes * 3))

    assert sorted(one.version for one in results) == list(range(2, len(results) + 2))
    assert sorted(one.settings_version for one in results) == list(range(2, len(results) + 2))
    assert len(planes[0].list_slo_history("chat")) == len(results) + 1


def test_exactly_one_tenant_is_made_when_all_want_the_name(planes: list[ControlPlane]) -> None:
    results = at_once(*(lambda p=p: p.create_tenant("chat") for p in planes))
    assert sum(isinstance(result, ConflictError) for result in results) == len(planes) - 1
    assert planes[0].snapshot().version == 1


def test_subscribers_hear_versions_that_only_grow_when_threads_change_things(
    control_plane: ControlPlane,
) -> None:
    heard: list[int] = []
    control_plane.subscribe(lambda snapshot: heard.append(snapshot.version))
    at_once(*(lambda n=n: control_plane.create_tenant(f"t{n}") for n in range(2 * WRITERS)))

    assert heard == sorted(set(heard))
    assert heard[-1] == 2 * WRITERS


def test_a_key_is_dead_for_subscribers_when_revoking_returns(control_plane: ControlPlane) -> None:
    """The caller may rely on it, whoever else publishes at the moment."""
    control_plane.create_tenant("chat")
    newest = [control_plane.snapshot()]
    control_plane.subscribe(lambda snapshot: newest.append(snapshot))
    keys = [control_plane.keys.issue("chat") for _ in range(WRITERS)]

    def revoke(key_id: str) -> int:
        control_plane.keys.revoke(key_id)
        return len(newest[-1].keys)

    for key, left in zip(keys, at_once(*(lambda k=k: revoke(k.key_id) for k in keys)), strict=True):
        assert left < WRITERS
        assert key.secret not in newest[-1].keys
    assert newest[-1].keys == {}


def test_a_reader_sees_one_version_when_a_writer_is_busy(url: str, control_plane: ControlPlane) -> None:
    """Only this tenant is edited, so its version and the settings version are always the same."""
    control_plane.create_tenant("chat")
    seen: list[tuple[int, int]] = []

    def write() -> None:
        for _ in range(30):
            control_plane.set_slo("chat", slo())

    def read() -> None:
        with opened(url) as other:
            while not seen or seen[-1][0] < 31:
                snapshot = other.snapshot()
                seen.append((snapshot.version, snapshot.tenants["chat"].slo_version))

    at_once(write, read)

    assert seen == sorted(seen)
    assert all(slo_version == version for version, slo_version in seen)


def test_an_edit_waits_for_the_history_however_short_the_database_itself_would(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not url.startswith("sqlite"):
        pytest.skip("PostgreSQL has one lock for each row: an edit waits for nothing")
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    is_storing, versions = threading.Event(), []
    with opened(url) as control_plane:

        def store() -> None:
            with control_plane.store.storing() as session:
                session.connection(execution_options=sqlite.TO_WRITE)
                is_storing.set()
                time.sleep(0.5)
                versions.append(control_plane.store.version())
                session.commit()

        def edit() -> None:
            is_storing.wait(5.0)
            versions.append(control_plane.create_tenant("chat").revision.settings_version)

        at_once(store, edit)
    assert versions == [0, 1]


def test_use_is_stored_when_others_write_at_the_same_moment(planes: list[ControlPlane]) -> None:
    """It reads before it writes, as notes of when keys and tokens were last used do."""
    planes[0].create_tenant("chat")
    key_id, day = planes[0].keys.issue("chat").key_id, date(2026, 1, 31)
    use = {UseOf("chat", WHOLE_TENANT, day): Tokens(output_tokens=1)}

    def store(plane: ControlPlane) -> None:
        for _ in range(10):
            plane.limits.add_use(use)
            plane.keys.used({key_id: plane.store.clock()})
            plane.admin_tokens.used({"nobody": plane.store.clock()})

    at_once(*(lambda p=p: store(p) for p in planes))
    assert planes[0].limits.use_since(day) == {
        UseOf("chat", WHOLE_TENANT, day): Tokens(output_tokens=10 * WRITERS)
    }
