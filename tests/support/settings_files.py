"""Settings as a test says they are: nothing of this machine's environment or files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdmuxd.daemon.settings import LoadedSettings, load_settings
from pdmuxd.engine.core.errors import SettingsError


def load(
    overrides: dict[str, object] | None = None,
    *,
    environ: dict[str, str] | None = None,
    config: Path | None = None,
    search: tuple[Path, ...] = (),
) -> LoadedSettings:
    return load_settings(config, overrides, environ={"HOME": "/home/x"} | (environ or {}), search=search)


def toml(folder: Path, text: str) -> Path:
    path = folder / "pdmuxd.toml"
    path.write_text(text)
    return path


def error_of(overrides: dict[str, object] | None = None, **places: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(overrides, **places)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text
