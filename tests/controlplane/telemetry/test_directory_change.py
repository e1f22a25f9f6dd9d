"""What differs between two directories, found out in a thread or where it is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from telemetry_feeds import HandClock, directory, telemetry

from pdmuxd.controlplane.telemetry.directory_change import DirectoryChange


def test_created_changed_and_deleted_tenants_are_found_and_others_are_not() -> None:
    before = directory(1, chat=0.04, same=0.04, gone=0.04)
    now = replace(before, version=2, tenants={**before.tenants, **directory(2, chat=0.03, new=0.1).tenants})
    tenants = dict(now.tenants)
    del tenants["gone"]
    now = replace(now, tenants=tenants)
    change = DirectoryChange.between(before, now, 0.0)
    found = {name: (old is not None, new is not None) for name, old, new in change.tenants}
    assert found == {"chat": (True, True), "new": (False, True), "gone": (True, False)}
    assert {tenant.tenant for tenant in change.told.changed} == {"chat", "new"}
    assert change.told.removed == ("gone",)
    assert change.told.version == 2


@pytest.mark.parametrize("is_of_another", [False, True])
def test_telemetry_is_the_same_when_a_change_was_found_elsewhere(is_of_another: bool) -> None:
    """One that starts from another directory, as when two came at once, is not believed."""
    fed = telemetry(HandClock(), chat=0.04, gone=0.04)
    before = directory(7, other=0.1) if is_of_another else fed.directory
    now = directory(9, chat=0.03)
    fed.on_refused("gone", "limit")
    fed.on_directory(now, DirectoryChange.between(before, now, 0.0))
    assert fed.directory is now
    assert "gone" not in fed.tenants
    marks = {(mark.kind, mark.tenant) for mark in fed.recorder.take().marks}
    assert {("slo", "chat"), ("tenant", "gone")} <= marks
