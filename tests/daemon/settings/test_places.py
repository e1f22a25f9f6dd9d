"""Where state, sockets and the token are kept, and who may enter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from settings_files import load

from pdmuxd.daemon.settings.places import SOCKET_NAME_BYTES, SOCKET_PATH_BYTES, make_private
from pdmuxd.engine.core.errors import SettingsError


def test_systemds_directories_are_used_when_it_names_them() -> None:
    loaded = load(environ={"STATE_DIRECTORY": "/var/lib/pdmuxd", "RUNTIME_DIRECTORY": "/run/pdmuxd:/run/b"})
    settings = loaded.settings
    assert settings.resolved_state_dir == Path("/var/lib/pdmuxd")
    assert settings.resolved_runtime_dir == Path("/run/pdmuxd")
    assert settings.resolved_token_file == Path("/var/lib/pdmuxd/admin-token")
    assert settings.resolved_database_url == "sqlite:////var/lib/pdmuxd/pdmuxd.db"
    assert loaded.origins["state_dir"] == "default, $STATE_DIRECTORY"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_STATE_HOME": "/xdg"}, "/xdg/pdmuxd"),
        ({"XDG_STATE_HOME": "relative"}, "~/.local/state/pdmuxd"),
        ({}, "~/.local/state/pdmuxd"),
    ],
)
def test_state_goes_where_xdg_says_when_systemd_says_nothing(environ: dict[str, str], expected: str) -> None:
    assert load(environ=environ).settings.resolved_state_dir == Path(expected).expanduser()


def test_relative_paths_are_taken_from_the_working_directory_when_they_are_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load({"state_dir": ".pdmuxd", "admin.token_file": "t", "runtime_dir": "r"}).settings
    assert settings.resolved_state_dir == tmp_path / ".pdmuxd"
    assert settings.resolved_token_file == tmp_path / "t"
    assert settings.resolved_runtime_dir == tmp_path / "r"


def test_the_database_url_leads_back_to_the_file_when_its_path_has_odd_characters(tmp_path: Path) -> None:
    from sqlalchemy import make_url

    folder = tmp_path / "a b?c%20#d"
    url = load({"state_dir": folder}).settings.resolved_database_url
    assert make_url(url).database == str(folder / "pdmuxd.db")


@given(length=st.integers(min_value=1, max_value=200))
def test_a_socket_always_fits_when_the_state_directory_is_long(length: int) -> None:
    loaded = load({"state_dir": "/" + "d" * length})
    runtime_dir = loaded.settings.resolved_runtime_dir
    assert len(os.fsencode(runtime_dir / ("s" * SOCKET_NAME_BYTES))) <= SOCKET_PATH_BYTES
    moved = runtime_dir != loaded.settings.resolved_state_dir / "run"
    assert moved == bool(loaded.notes)
    assert not moved or str(runtime_dir) in loaded.notes[0]


def test_the_short_directory_differs_when_the_state_directories_differ() -> None:
    one = load({"state_dir": "/" + "a" * 100}).settings.resolved_runtime_dir
    other = load({"state_dir": "/" + "b" * 100}).settings.resolved_runtime_dir
    assert one != other
    assert one == load({"state_dir": "/" + "a" * 100}).settings.resolved_runtime_dir


def test_a_private_directory_is_made_when_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    make_private(path)
    make_private(path)
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_directory_becomes_private_when_others_could_enter_it(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir(mode=0o755)
    make_private(path)
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_link_is_refused_when_it_stands_where_the_private_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(SettingsError, match="is not a directory"):
        make_private(tmp_path / "link")


def test_a_directory_of_someone_else_is_refused_when_it_should_be_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(SettingsError, match="belongs to another user"):
        make_private(tmp_path)


def test_a_file_is_refused_when_it_stands_above_the_private_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot use the directory"):
        make_private(tmp_path / "file" / "run")
