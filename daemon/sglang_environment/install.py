"""Make SGLang's environment, or finish one that was begun: each step may be done again.

SGLang pins what it needs, so it has an environment of its own. pdmuxd's package is put there too, without the
daemon's dependencies: SGLang finds the plugin by the package's entry point, and the extra `sglang` of the
package lists what the plugin imports.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pdmuxd.daemon.sglang_environment.indexes import uv_environment_beside
from pdmuxd.engine.core.errors import EngineError, SettingsError
from pdmuxd.engine.sglang.api.versions import TESTED, TRIED

LOCK = "constraints.txt"
EXTRA = 'extra == "sglang"'
NEEDED_BYTES = 12 * 10**9
"""`du -s` says 9.6 to 11 GB of the environment (2026-11-25, SGLang 0.5.23); the rest is for unpacking."""

Run = Callable[[Sequence[str], Mapping[str, str] | None], bool]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be installed, and where."""

    folder: Path
    version: str
    lock: Path | None
    """The versions of everything beside; None where this installation has no such file."""
    source: Path | None
    """The checkout that runs, which is then linked; None: the installed package is copied."""

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"


def plan(folder: Path, version: str) -> Plan:
    """What would be done. Raises: SettingsError for a version that is not supported."""
    if version not in TESTED and version != os.environ.get(TRIED):
        raise SettingsError(f"--version: {version!r} is not supported; allowed are {', '.join(TESTED)}")
    source = _checkout()
    places = [Path(sysconfig.get_path("data")) / "share" / "pdmuxd" / LOCK]
    if source is not None:
        places.insert(0, source / LOCK)
    lock = next((place for place in places if place.is_file()), None)
    # The file locks the newest version and what fits it; another version is resolved anew.
    return Plan(folder=folder, version=version, lock=lock if version == TESTED[-1] else None, source=source)


def check_disk(folder: Path, free_bytes: Callable[[Path], int] | None = None) -> None:
    """Raises: SettingsError if the disk has too little room for an environment that is not there yet."""
    if (folder / "bin" / "python").exists():
        return  # what is missing of one that was begun, nobody knows
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = (free_bytes or _free_bytes)(there)
    if free < NEEDED_BYTES:
        raise SettingsError(
            f"--folder: SGLang needs {NEEDED_BYTES / 1e9:.0f} GB and {there} has {free / 1e9:.1f} GB free: "
            "make room, or name a folder on another disk"
        )


def install(wanted: Plan, say: Say, run: Run | None = None) -> None:
    """Do it, a line for each step. Raises: EngineError naming the step that failed; run it again to go on."""
    run = run or _run
    began = time.monotonic()

    def step(number: int, text: str) -> None:
        say(f"[{number}/4] {text} ({time.monotonic() - began:.0f} s since the start)")

    step(1, f"the environment {wanted.folder}")
    if not wanted.python.exists():
        try:
            venv.create(wanted.folder, with_pip=True, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise EngineError(
                f"no environment can be made in {wanted.folder}: {error}; on Debian and Ubuntu: "
                "apt-get install python3-venv"
            ) from error
    constraint = [] if wanted.lock is None else ["--constraint", str(wanted.lock)]
    python = str(wanted.python)
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    uv = [str(wanted.folder / "bin" / "uv"), "pip", "install", "--python", python]

    def installed(*what: str) -> bool:
        return run([*uv, *what], environ) or run([*pip, *what], None)

    step(2, "uv, which installs the rest; where it cannot, pip does, and takes longer")
    run([*pip, "--quiet", *constraint, "uv"], None)
    environ = uv_environment_beside(python)
    step(3, f"SGLang {wanted.version}, PyTorch and what they need: 11 GB and several minutes the first time")
    needed = plugin_requirements(metadata.requires("pdmuxd") or ())
    _must(installed(*constraint, f"sglang=={wanted.version}", *needed), "SGLang cannot be installed")
    step(4, "pdmuxd's plugin")
    if wanted.source is not None:
        _must(installed("--no-deps", "--editable", str(wanted.source)), "pdmuxd cannot be installed")
    else:
        copy_package(site_packages(wanted.folder))
    say(f"done in {time.monotonic() - began:.0f} s: {python}")


def plugin_requirements(required: Sequence[str]) -> list[str]:
    """What the extra `sglang` asks for beside SGLang itself, given the package's requirements (PEP 508)."""
    split = [line.partition(";") for line in required]
    return [what.strip() for what, _, when in split if EXTRA in when and not what.startswith("sglang")]


def copy_package(target: Path) -> None:
    """Put a copy of the installed package and its metadata there, in the place of another version's."""
    for old in (target / "pdmuxd", *target.glob("pdmuxd-*.dist-info")):
        shutil.rmtree(old, ignore_errors=True)
    for file in metadata.files("pdmuxd") or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue  # the command and the lock file; bytecode is made where it is needed
        there = target.joinpath(*file.parts)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), there)


def site_packages(folder: Path) -> Path:
    """Where an environment of this Python's version keeps packages."""
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _checkout() -> Path | None:
    """The checkout that this file lies in, as after `pip install --editable`; else None."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() else None


def _free_bytes(place: Path) -> int:
    return shutil.disk_usage(place).free


def _must(done: bool, otherwise: str) -> None:
    if not done:
        raise EngineError(f"{otherwise}; what was said is above. Run the command again to go on from there")


def _run(command: Sequence[str], environ: Mapping[str, str] | None) -> bool:
    try:
        return subprocess.run(command, env=environ, check=False).returncode == 0  # noqa: S603
    except OSError:
        return False  # there is no uv
