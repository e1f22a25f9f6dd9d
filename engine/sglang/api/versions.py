"""Which SGLang this package runs with: the one place that says so.

With each version in TESTED, tokens were equal to stock SGLang's on the CPU (`make test-sglang-versions`);
on a GPU only the newest one has run. What is published later under the same number (`0.5.23.post1`) is in
the range, too, but was not tried: about that only the check of names at every start (`check.py`) says
something.
"""

from __future__ import annotations

import os
import re

from pdmuxd.engine.core.errors import SettingsError

OLDEST, NEWEST = (0, 5, 22), (0, 5, 23)
TESTED = ("0.5.22", "0.5.23")
REQUIREMENT = "sglang>=0.5.22,<0.5.24"
"""The same for an installer; `pyproject.toml` has to say it, too."""
RANGE = f"{TESTED[0]} to {TESTED[-1]}"

TRIED = "TRY_SGLANG_VERSION"
"""An environment variable: the version that tests try as if it were in the range."""

_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?(?:\+[\w.]+)?")


def is_supported(version: str) -> bool:
    """Whether a version is in the range. Release candidates and development versions are not,
    unless one is TRIED."""
    if version and version == os.environ.get(TRIED):
        return True
    found = _RELEASE.fullmatch(version)
    return found is not None and OLDEST <= tuple(map(int, found.groups())) <= NEWEST


def check_supported(version: str) -> str:
    """The version. Raises: SettingsError if it is not in the range."""
    if not is_supported(version):
        raise SettingsError(
            f"SGLang {version} is installed; pdmuxd changes SGLang's internals and runs with {RANGE} only"
        )
    return version
