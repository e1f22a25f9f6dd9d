"""What an installation gets: all packages, their data, and no bare folder names in site-packages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pdmuxd.engine.sglang.api.versions import RANGE, REQUIREMENT, TESTED

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def setuptools_table() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return table


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel that is built of links to the sources, so that nothing is left among them."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "LICENSE", "constraints.txt", *_folders()):
        (source / name).symlink_to(ROOT / name)
    (source / "README.md").touch()  # only its text is in the wheel
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--no-index", "--disable-pip-version-check", "--wheel-dir", place, source),
        ],
        check=True,
        timeout=250,
    )
    (built,) = place.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


CLIENT = "tui/client/public"
"""The one folder below another whose name in an installation is not its path."""


def _folders() -> list[str]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return [folder for folder in table["package-dir"].values() if folder != CLIENT]


def _installed(path: Path) -> str:
    """The name of a file of the sources in an installation, below `pdmuxd`."""
    name = path.relative_to(ROOT).as_posix()
    return f"client{name.removeprefix(CLIENT)}" if name.startswith(f"{CLIENT}/") else name


def test_every_package_is_listed_when_it_has_an_init(setuptools_table: dict[str, Any]) -> None:
    found = {
        f"pdmuxd.{_installed(path).removesuffix('/__init__.py').replace('/', '.')}"
        for folder in _folders()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(setuptools_table["packages"]) == found


def test_every_module_is_in_a_package_when_it_is_in_one_of_the_folders() -> None:
    alone = [
        str(path.relative_to(ROOT))
        for folder in _folders()
        for path in (ROOT / folder).rglob("*.py")
        if path.parent != ROOT / "migrations" / "versions" and not (path.parent / "__init__.py").exists()
    ]
    assert alone == []


def test_the_list_is_sorted_when_packages_are_added(setuptools_table: dict[str, Any]) -> None:
    assert setuptools_table["packages"] == sorted(setuptools_table["packages"])


def test_only_our_package_is_installed_when_a_wheel_is_built(wheel: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"pdmuxd"}


def test_the_lock_file_is_installed_when_a_wheel_is_built(wheel: list[str]) -> None:
    beside = [name.partition(".data/")[2] for name in wheel if ".data/" in name]
    assert beside == ["data/share/pdmuxd/constraints.txt"]


def test_every_module_and_its_data_are_installed_when_a_wheel_is_built(wheel: list[str]) -> None:
    wanted = {
        f"pdmuxd/{_installed(path)}"
        for folder in _folders()
        for pattern in ("*.py", "py.typed", "*.json", "*.mako", "*.html", "*.css", "*.js")
        for path in (ROOT / folder).rglob(pattern)
    }
    assert wanted - set(wheel) == set()


def test_the_command_is_installed_when_a_wheel_is_built(wheel: list[str]) -> None:
    assert any(name.endswith(".dist-info/entry_points.txt") for name in wheel)


def test_the_extra_and_the_documentation_say_which_sglang_is_supported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [one for one in project["optional-dependencies"]["sglang"] if "sglang" in one] == [REQUIREMENT]
    assert f"SGLang {RANGE}" in (ROOT / "docs" / "sglang.md").read_text()
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "sglang==" in line]
    assert pinned == [f"sglang=={TESTED[-1]}"]


def test_the_changelog_begins_with_what_is_unreleased_and_then_the_version() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    titles = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert titles[0] == "Unreleased"
    assert re.fullmatch(re.escape(version) + r" - \d{4}-\d\d-\d\d", titles[1])
    kinds = {line for line in lines if line.startswith("### ")}
    assert kinds <= {"### Breaking", "### Added", "### Changed", "### Fixed"}
