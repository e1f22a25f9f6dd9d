from __future__ import annotations

import time
from datetime import timedelta

import pytest
from stores import new_database, opened

from pdmuxd.controlplane.services.store import utc_now
from pdmuxd.daemon.duties import retention
from pdmuxd.daemon.duties.retention import forget_old
from pdmuxd.daemon.process.clock import ClockWatch
from pdmuxd.engine.core.errors import StoreError


@pytest.mark.parametrize(("days", "left"), [(0, 3), (400, 3), (30, 0)])
async def test_the_audit_is_kept_as_long_as_it_is_said(tmp_path, days, left):
    with opened(new_database(tmp_path)) as control_plane:
        for name in "abc":
            control_plane.create_tenant(name)
        written = control_plane.store.clock
        control_plane.store.clock = lambda: written() + timedelta(days=100)
        await forget_old(control_plane, days, ClockWatch())
        assert len(control_plane.audit()) == left
        assert len(control_plane.list_tenants()) == 3


async def test_it_is_tried_again_another_time_when_the_database_is_busy(tmp_path, monkeypatch):
    with opened(new_database(tmp_path)) as control_plane:

        def busy(*_: object) -> int:
            raise StoreError("the database is locked")

        monkeypatch.setattr(control_plane, "forget_audit", busy)
        told = []
        monkeypatch.setattr(retention.log, "warning", lambda event, **more: told.append((event, more)))
        await forget_old(control_plane, 30, ClockWatch())
        assert told == [("old entries are not deleted", {"reason": "the database is locked"})]


async def test_nothing_is_deleted_when_the_clock_was_set_years_ahead(tmp_path):
    offset_s = [0.0]
    clock = ClockWatch(wall=lambda: time.monotonic() + offset_s[0])
    with opened(new_database(tmp_path)) as control_plane:
        control_plane.store.clock = lambda: utc_now() + timedelta(seconds=offset_s[0])
        control_plane.create_tenant("a")
        offset_s[0] = 10 * 365 * 86_400.0
        await forget_old(control_plane, 30, clock)
        assert len(control_plane.audit()) == 1
        offset_s[0] = 3600.0
        await forget_old(control_plane, 30, clock)
        assert len(control_plane.audit()) == 1, "an hour is nothing"
