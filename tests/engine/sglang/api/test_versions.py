"""The range of SGLang's versions: one place says it, the others repeat it."""

import tomllib
from pathlib import Path

import pytest

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.api.versions import RANGE, REQUIREMENT, TESTED, check_supported, is_supported

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("version", [*TESTED, f"{TESTED[-1]}.post2", f"{TESTED[0]}+cu130"])
def test_versions_in_the_range_are_taken(version):
    assert check_supported(version) == version


@pytest.mark.parametrize("version", ["0.5.21", "0.5.24", "0.6.22", "0.5.23rc1", "0.5.23.dev7", "main", ""])
def test_versions_outside_are_refused_with_the_range(version):
    assert not is_supported(version)
    with pytest.raises(SettingsError, match=rf"^SGLang {version} is installed; .* {RANGE} only$"):
        check_supported(version)


def test_the_extra_and_the_documentation_say_the_same_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["sglang"] == [REQUIREMENT]
    assert f"SGLang {RANGE}" in (ROOT / "docs" / "sglang.md").read_text()
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "sglang==" in line]
    assert pinned == [f"sglang=={TESTED[-1]}"]
