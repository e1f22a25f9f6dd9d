from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import AdminCalls, FakeClock, new_database, opened

from pdmuxd.controlplane.services.control_plane import ControlPlane


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_database(tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def control_plane(url: str, clock: FakeClock) -> Iterator[ControlPlane]:
    with opened(url, clock) as control_plane:
        yield control_plane


@pytest.fixture
def call(control_plane: ControlPlane) -> AdminCalls:
    return AdminCalls(control_plane)
