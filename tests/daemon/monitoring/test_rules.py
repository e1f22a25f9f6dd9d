"""The rules under promtool: they parse, and alerts fire when they should and not before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pdmuxd.daemon.monitoring.files import write

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")


def promtool(folder: Path, *args: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *args], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_is_valid(tmp_path):
    write(tmp_path, targets=("127.0.0.1:8081",))
    promtool(tmp_path, "check", "config", "prometheus.yml")


@pytest.mark.slow
def test_alerts_fire_when_they_should(tmp_path):
    write(tmp_path, targets=("127.0.0.1:8081",))
    shutil.copy(Path(__file__).with_name("rules.test.yml"), tmp_path)
    promtool(tmp_path, "test", "rules", "rules.test.yml")
