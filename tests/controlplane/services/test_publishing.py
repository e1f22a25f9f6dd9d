"""Who works from a snapshot hears of every change, in order."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.exc import OperationalError
from sqlmodel import Session
from stores import opened, slo

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.engine.core.errors import NotFoundError, StaleVersionError, StoreError


@pytest.fixture
def heard(control_plane: ControlPlane) -> list[DirectorySnapshot]:
    heard: list[DirectorySnapshot] = []
    control_plane.subscribe(heard.append)
    return heard


def test_a_subscriber_hears_of_each_change_when_it_is_committed(
    control_plane: ControlPlane, heard: list[DirectorySnapshot]
) -> None:
    control_plane.create_tenant("chat")
    key = control_plane.keys.issue("chat")
    control_plane.set_slo("chat", slo())
    control_plane.update_tenant("chat", max_in_flight=3)
    control_plane.keys.revoke(key.key_id)
    control_plane.delete_tenant("chat")

    assert [snapshot.version for snapshot in heard] == [1, 2, 3, 4, 5, 6]
    assert heard[1].authenticate(key.secret).name == "chat"
    assert heard[2].tenants["chat"].slo == slo()
    assert heard[3].tenants["chat"].max_in_flight == 3
    assert heard[4].keys == {}
    assert heard[5].tenants == {}


def test_a_subscriber_hears_nothing_when_nothing_changed(
    control_plane: ControlPlane, heard: list[DirectorySnapshot]
) -> None:
    control_plane.create_tenant("chat")
    heard.clear()

    control_plane.update_tenant("chat", enabled=True)
    with pytest.raises(StaleVersionError):
        control_plane.set_slo("chat", slo(), expected_version=9)
    with pytest.raises(NotFoundError):
        control_plane.delete_tenant("other")
    control_plane.get_tenant("chat")

    assert heard == []


def test_a_subscriber_hears_no_more_when_it_has_left(control_plane: ControlPlane) -> None:
    heard: list[DirectorySnapshot] = []
    leave = control_plane.subscribe(heard.append)
    control_plane.create_tenant("a")
    leave()
    control_plane.create_tenant("b")
    assert [snapshot.version for snapshot in heard] == [1]


def test_nothing_is_changed_or_heard_when_the_commit_fails(
    control_plane: ControlPlane, heard: list[DirectorySnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_session: Session) -> None:
        raise OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    control_plane.create_tenant("chat")
    with monkeypatch.context() as broken:
        broken.setattr(Session, "commit", fail)
        with pytest.raises(StoreError, match="disk I/O error"):
            control_plane.set_slo("chat", slo())
        with pytest.raises(StoreError):
            control_plane.keys.issue("chat")

    assert [snapshot.version for snapshot in heard] == [control_plane.snapshot().version] == [1]
    assert control_plane.keys.list() == []
    assert control_plane.set_slo("chat", slo()).settings_version == 2


def test_a_change_of_another_process_is_heard_when_refreshed(
    url: str, control_plane: ControlPlane, heard: list[DirectorySnapshot]
) -> None:
    assert not control_plane.refresh()
    with opened(url) as other:
        other.create_tenant("from-elsewhere")
    assert heard == []

    assert control_plane.refresh()
    assert not control_plane.refresh()

    assert [list(snapshot.tenants) for snapshot in heard] == [["from-elsewhere"]]
