"""Make a virtual environment of what the lock file pins, and write that file; needs only Python itself.

uv installs in seconds what takes pip minutes, so pip fetches uv, and uv installs the rest. uv does not read
pip's configuration: it is handed the indexes and certificates that pip is set to use. Where uv cannot be had,
or fails, pip installs everything, and a line says so.

    python .ci/environment.py install .venv
    python .ci/environment.py install .venv-sglang --sglang
    .venv/bin/python .ci/environment.py lowest .venv-lowest
    .venv/bin/python .ci/environment.py lock
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = "constraints.txt"
TEST_TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
"""What `make test-lowest` needs beside pdmuxd itself: at locked versions, for they are not what it tries."""
VERSIONS = (3, 11), (3, 13)

PIP_SECTIONS = ("global", "install", ":env:")
"""Where pip finds a setting; a later one wins."""
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
SEPARATED_BY_COMMAS = ("UV_FIND_LINKS",)
"""uv's other lists are separated by spaces."""


def pip_settings(listing: str) -> dict[str, str]:
    """Read what `pip config list` printed: `section.name='value'`, a line each."""
    found: dict[str, str] = {}
    lines = [line.partition("=") for line in listing.splitlines()]
    for section in PIP_SECTIONS:
        for key, _, value in lines:
            if key.startswith(f"{section}."):
                found[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return found


def uv_environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which uv uses the indexes that pip would; what the user set for uv itself stays."""
    given = {}
    for name, value in settings.items():
        if (uv_name := UV_NAMES.get(name)) is not None:
            given[uv_name] = ("," if uv_name in SEPARATED_BY_COMMAS else " ").join(value.split())
    # As pip does it: the best version of all indexes, not that of the first index that has any.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1", **given, **environ}


def steps_of(*, sglang: bool) -> list[list[str]]:
    """What to install, step by step, as arguments that pip and uv both know."""
    if not sglang:
        return [["--editable", ".[dev]"]]
    import tomllib  # an older Python gets to hear that it is too old

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # Without pdmuxd's own dependencies: inside SGLang its plugin needs only what SGLang brings.
    return [list(project["optional-dependencies"]["sglang"]), ["--no-deps", "--editable", "."]]


def install(folder: Path, *, sglang: bool) -> bool:
    """Create the environment in `folder` and fill it; whether that succeeded."""
    size = "several minutes and 11 GB" if sglang else "some 100 packages"
    _say(f"[1/3] creating {folder.name}")
    venv.create(folder, with_pip=True, symlinks=True)
    python = str(folder / "bin" / "python")
    steps = steps_of(sglang=sglang)
    _say("[2/3] fetching uv, which installs the rest")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--constraint", LOCK]
    why = "could not be fetched"
    if _run([*pip, "--quiet", "uv"]):
        _say(f"[3/3] installing ({size} the first time)")
        uv = [str(folder / "bin" / "uv"), "pip", "install", "--python", python, "--constraint", LOCK]
        environ = _uv_environment(python)
        if all(_run([*uv, *step], environ) for step in steps):
            return True
        why = "could not install"
    _say(f"[3/3] uv {why}, so pip installs ({size}; this takes it a few minutes)")
    return all(_run([*pip, *step]) for step in steps)


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
    return _run([*command, "--editable", ".", *tools], _uv_environment(python))


def lock() -> bool:
    """Write the lock file anew: what is pinned stays where it still fits. Needs uv beside this Python."""
    python = sys.executable
    uv = _uv_beside(python)
    if uv is None:
        return False
    # Names and versions alone: hashes and addresses would tie the file to one index.
    options = "--universal --python-version 3.11 --all-extras --no-annotate --quiet"
    command = [str(uv), "pip", "compile", *options.split(), "--output-file", LOCK, "pyproject.toml"]
    return _run(command, _uv_environment(python) | {"UV_CUSTOM_COMPILE_COMMAND": "make lock"})


def _uv_beside(python: str) -> Path | None:
    uv = Path(python).with_name("uv")
    if uv.exists():
        return uv
    sys.stderr.write("there is no uv in this environment: make install\n")
    return None


def _uv_environment(python: str) -> dict[str, str]:
    listing = subprocess.run(  # noqa: S603
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    return uv_environment(pip_settings(listing), os.environ)


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
    installing.add_argument(
        "--sglang", action="store_true", help="SGLang's environment instead of the project's"
    )
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
    return 0 if install(options.folder, sglang=options.sglang) else 1


if __name__ == "__main__":
    sys.exit(main())
