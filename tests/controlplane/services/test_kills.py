"""A daemon that is killed while it writes loses no change that it had acknowledged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from postgres_server import find_programs
from stores import new_database, postgres_server

WRITER = Path(__file__).parents[2] / "support" / "killed_writer.py"
APPLIER = WRITER.with_name("killed_apply.py")


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


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_configuration_is_there_as_a_whole_when_it_is_killed_50_times(tmp_path: Path, backend: str) -> None:
    if backend == "postgresql":
        if find_programs() is None:
            pytest.skip("needs PostgreSQL: apt-get install postgresql")
        url = postgres_server().new_database()
    else:
        url = new_database(tmp_path).removeprefix("sqlite:///")
    ended = subprocess.run(
        [sys.executable, str(APPLIER), url, "50"], capture_output=True, text=True, timeout=1100, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "50 kills, " in ended.stdout
    before_and_after = int(ended.stdout.split(", ")[1].split()[0])
    assert 0 < before_and_after < 50, "kills came both before and after the commit"
