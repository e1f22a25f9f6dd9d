from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_database, opened
from telemetry_feeds import HandClock

from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.recorder import Recorder
from pdmuxd.controlplane.services.control_plane import ControlPlane


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with opened(new_database(tmp_path)) as control_plane:
        yield control_plane


@pytest.fixture
def recorder(clock: HandClock) -> Recorder:
    return Recorder(clock)


@pytest.fixture
def history(recorder: Recorder, control_plane: ControlPlane) -> History:
    return History(recorder, control_plane.store)
