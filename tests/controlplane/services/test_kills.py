"""A daemon that is killed while it writes loses no change that it had acknowledged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from stores import new_database

WRITER = Path(__file__).parents[2] / "support" / "killed_writer.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_acknowledged_change_is_there_when_it_is_killed_200_times(tmp_path: Path) -> None:
    url = new_database(tmp_path)
    path = url.removeprefix("sqlite:///")
    ended = subprocess.run(
        [sys.executable, str(WRITER), path, "200"], capture_output=True, text=True, timeout=1100, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "200 kills, " in ended.stdout
