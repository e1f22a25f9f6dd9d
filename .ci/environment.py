"""Make a virtual environment of what the lock file pins, and write that file; needs only Python itself.

uv installs in seconds what takes pip minutes, so pip fetches uv, and uv installs the rest. uv does not read
pip's configuration: it is handed the indexes and certificates that pip is set to use. Where uv cannot be had,
or fails, pip installs everything, and a line says so.

    python .ci/environment.py install .venv
    .venv/bin/python .ci/environment.py lowest .venv-lowest
    .venv/bin/python .ci/environment.py lock
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "daemon" / "sglang_environment"))
from indexes import uv_environment_beside  # the one file of pdmuxd that needs no package installed

ROOT = Path(__file__).resolve().parents[1]
LOCK = "constraints.txt"
TEST_TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
"""What `make test-lowest` needs beside pdmuxd itself: at locked versions, for they are not what it tries."""
VERSIONS = (3, 11), (3, 13)


def install(folder: Path) -> bool:
    """Create the environment in `folder` and fill it; whether that succeeded."""
    size = "some 100 packages"
    _say(f"[1/3] creating {folder.name}")
    venv.create(folder, with_pip=True, symlinks=True)
    python = str(folder / "bin" / "python")
    what = ["--constraint", LOCK, "--editable", ".[dev]"]
    _say("[2/3] fetching uv, which installs the rest")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    why = "could not be fetched"
    if _run([*pip, "--constraint", LOCK, "--quiet", "uv"]):
        _say(f"[3/3] installing ({size} the first time)")
        uv = [str(folder / "bin" / "uv"), "pip", "install", "--python", python]
        if _run([*uv, *what], uv_environment_beside(python)):
            return True
        why = "could not install"
    _say(f"[3/3] uv {why}, so pip installs ({size}; this takes it a few minutes)")
    return _run([*pip, *what])


def install_lowest(folder: Path) -> bool:
    """Create an environment of the lowest versions that pyproject.toml allows; uv alone can."""
    uv = _uv_beside(sys.executable)
    if uv is None:
        return False
    _say(f"creating {folder.name} with the lowest versions that pyproject.toml allows")
    venv.create(folder, with_pip=True, symlinks=True)
    python = str(folder / "bin" / "python")
    locked = (ROOT / LOCK).read_text().splitlines()
    tools = [pin for pin in locked if pin.partition("==")[0] in TEST_TOOLS]
    command = [str(uv), "pip", "install", "--quiet", "--python", python, "--resolution", "lowest-direct"]
    return _run([*command, "--editable", ".", *tools], uv_environment_beside(python))


def lock() -> bool:
    """Write the lock file anew: what is pinned stays where it still fits. Needs uv beside this Python."""
    python = sys.executable
    uv = _uv_beside(python)
    if uv is None:
        return False
    # Names and versions alone: hashes and addresses would tie the file to one index.
    options = "--universal --python-version 3.11 --all-extras --no-annotate --quiet"
    command = [str(uv), "pip", "compile", *options.split(), "--output-file", LOCK, "pyproject.toml"]
    return _run(command, uv_environment_beside(python) | {"UV_CUSTOM_COMPILE_COMMAND": "make lock"})


def _uv_beside(python: str) -> Path | None:
    uv = Path(python).with_name("uv")
    if uv.exists():
        return uv
    sys.stderr.write("there is no uv in this environment: make install\n")
    return None


def _run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> bool:
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0  # noqa: S603


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Exit 0 if it is done, 1 if something could not be installed, 2 on a Python that does not fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("lock", help="write the lock file anew")
    installing = commands.add_parser("install", help="create an environment and fill it")
    installing.add_argument("folder", type=Path)
    lowest = commands.add_parser("lowest", help="create an environment of the lowest versions allowed")
    lowest.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "lock":
        return 0 if lock() else 1
    if options.command == "lowest":
        return 0 if install_lowest(options.folder) else 1
    if not VERSIONS[0] <= sys.version_info[:2] <= VERSIONS[1]:
        sys.stderr.write("pdmuxd needs Python 3.11 to 3.13; name one with make PYTHON=python3.12 ...\n")
        return 2
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        sys.stderr.write(
            "Python's venv module is incomplete; on Debian and Ubuntu: apt-get install python3-venv\n"
        )
        return 2
    return 0 if install(options.folder) else 1


if __name__ == "__main__":
    sys.exit(main())
