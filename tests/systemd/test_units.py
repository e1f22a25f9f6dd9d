"""The unit and its companions, judged by systemd's own tools where they are installed."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pdmuxd.daemon.settings import Settings, load_settings
from pdmuxd.daemon.supervisor.choice import EMULATOR_START_S

FOLDER = Path(__file__).parents[2] / "systemd"
WORST_EXPOSURE = 20
"""Tenths of systemd's exposure level, which goes from 0 to 10; below 2.0 it says OK."""


def tool(name: str) -> str:
    """The path of one of systemd's tools; without it the test is skipped, but not in CI."""
    path = shutil.which(name)
    if path is None:
        assert not os.environ.get("CI"), f"{name} is missing; install the package systemd"
        pytest.skip(f"{name} is not installed")
    return path


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as an administrator would have it: what it starts exists."""
    text = (FOLDER / "pdmuxd.service").read_text()
    unit = tmp_path / "pdmuxd.service"
    # In quotes, since the folder of this checkout may have a space in its name.
    unit.write_text(re.sub(r"^(Exec\w+)=\S+", rf'\1="{sys.executable}"', text, flags=re.MULTILINE))
    return unit


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(FOLDER / "pdmuxd.service")
    return parser["Service"]


def test_systemd_says_nothing_when_it_verifies_the_unit(installed: Path) -> None:
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", installed], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_systemd_objects_when_the_unit_has_a_wrong_line(installed: Path) -> None:
    with installed.open("a") as unit:
        unit.write("\n[Service]\nWatchdgoSec=30\n")
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", installed], capture_output=True, text=True, timeout=60
    )
    assert "WatchdgoSec" in done.stderr


def test_the_exposure_is_low_when_systemd_rates_the_unit(installed: Path) -> None:
    command = [tool("systemd-analyze"), "security", "--offline=true", f"--threshold={WORST_EXPOSURE}"]
    done = subprocess.run([*command, "--no-pager", installed], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_user_is_made_when_sysusers_runs(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    subprocess.run(
        [tool("systemd-sysusers"), f"--root={tmp_path}", FOLDER / "pdmuxd.sysusers"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    users = [line.split(":") for line in (tmp_path / "etc" / "passwd").read_text().splitlines()]
    assert [(user[0], user[5], user[6]) for user in users] == [
        ("pdmuxd", "/var/lib/pdmuxd", "/usr/sbin/nologin")
    ]


def test_the_daemon_has_time_to_drain_when_it_is_stopped(service: configparser.SectionProxy) -> None:
    assert int(service["TimeoutStopSec"]) > Settings().drain_timeout_s + 15
    assert service["KillMode"] == "mixed"


def test_the_engine_has_time_to_start_when_the_unit_is_started(service: configparser.SectionProxy) -> None:
    assert int(service["TimeoutStartSec"]) > EMULATOR_START_S


def test_the_daemon_is_watched_when_it_runs(service: configparser.SectionProxy) -> None:
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert int(service["WatchdogSec"]) > 0
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"


def test_tokens_do_not_wait_for_ordinary_services_when_cores_are_short(
    service: configparser.SectionProxy,
) -> None:
    # 100 and 0 are what all others have.
    assert int(service["CPUWeight"]) > 100
    assert int(service["Nice"]) < 0


def test_state_and_sockets_are_private_when_systemd_makes_their_directories(
    service: configparser.SectionProxy,
) -> None:
    assert (service["StateDirectory"], service["StateDirectoryMode"]) == ("pdmuxd", "0700")
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryMode"]) == ("pdmuxd", "0700")
    environ = {"STATE_DIRECTORY": "/var/lib/pdmuxd", "RUNTIME_DIRECTORY": "/run/pdmuxd"}
    settings = load_settings(None, environ=environ, search=()).settings
    assert settings.resolved_state_dir == Path(service["WorkingDirectory"])
    assert settings.resolved_runtime_dir == Path("/run/pdmuxd")


def test_the_user_of_the_unit_is_the_one_that_is_made_when_it_is_installed(
    service: configparser.SectionProxy,
) -> None:
    made = re.search(r"^u (\S+)", (FOLDER / "pdmuxd.sysusers").read_text(), re.MULTILINE)
    assert made is not None
    assert service["User"] == service["Group"] == made[1]


def test_every_variable_of_the_example_is_a_setting_when_it_is_taken() -> None:
    text = (FOLDER / "pdmuxd.env.example").read_text()
    assignments = re.findall(r"^# (PDMUXD_[A-Z_]+)=(.*)$", text, re.MULTILINE)
    assert len(assignments) >= 4
    loaded = load_settings(None, environ=dict(assignments) | {"HOME": "/"}, search=())
    set_by_variable = [origin for origin in loaded.origins.values() if origin.startswith("env ")]
    assert len(set_by_variable) == len(assignments)


def test_the_example_sets_nothing_when_it_is_copied_as_it_is() -> None:
    lines = (FOLDER / "pdmuxd.env.example").read_text().splitlines()
    assert all(line == "" or line.startswith("#") for line in lines)
