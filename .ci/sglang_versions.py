"""Tests of names and of tokens with other versions of SGLang, each in an environment of its own.

    .venv/bin/python .ci/sglang_versions.py             # each supported version, and the newest published
    .venv/bin/python .ci/sglang_versions.py newest 0.5.22

A version beside the supported range is tried as if it were in it. What fails is named at the end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pdmuxd.engine.sglang.api.versions import TESTED, TRIED

ROOT = Path(__file__).resolve().parents[1]
NEWEST = "newest"
TESTS = (
    *("test_contract.py", "test_modes.py", "test_layerpauses.py", "test_families.py", "test_engine.py"),
    *("test_set_aside.py", "test_adapters.py", "test_invalid_rows.py", "test_expert_bits.py"),
)
"""Names, what classes keep, and tokens against the stock server of the same version."""

Run = Callable[[Sequence[str], Mapping[str, str]], bool]


def main(asked: Sequence[str], run: Run, published: Callable[[], str]) -> list[str]:
    """Try the versions; returns those that failed, with what did."""
    wanted = [published() if version == NEWEST else version for version in asked or (*TESTED, NEWEST)]
    failed = []
    for version in dict.fromkeys(wanted):
        folder = ROOT / f".venv-sglang-{version}"
        python = os.fspath(folder / "bin" / "python")
        environ = {TRIED: version, "PYTHON_SGLANG": python}
        install = ("-m", "pdmuxd.daemon.cli.main", "install-sglang", "--folder", os.fspath(folder))
        tests = ("-m", "pytest", "-q", "-m", "sglang", *(f"tests/sglang/{name}" for name in TESTS))
        sys.stdout.write(f"SGLang {version}\n")
        sys.stdout.flush()
        if not run((sys.executable, *install, "--version", version), environ):
            failed.append(f"{version}: it cannot be installed")
        elif not run((sys.executable, *tests), environ):
            failed.append(f"{version}: tests fail")
    return failed


def newest() -> str:
    """The newest release that the package index of pip's settings has. Raises: SystemExit."""
    command = (sys.executable, "-m", "pip", "index", "versions", "sglang")
    said = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return newest_of(said.stdout)


def newest_of(said: str) -> str:
    """The version that `pip index versions` names first. Raises: SystemExit."""
    found = re.match(r"sglang \(([\w.+]+)\)", said)
    if found is None:
        sys.exit("which SGLang is the newest is not known: `pip index versions sglang` names none")
    return found[1]


def _run(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    return subprocess.run(command, env=os.environ | environ, cwd=ROOT, check=False).returncode == 0  # noqa: S603


if __name__ == "__main__":
    if found := main(sys.argv[1:], _run, newest):
        sys.exit("\n".join(found))
