"""The indexes that pip is set to use, handed to uv, which does not read pip's configuration.

Imports nothing but the standard library: `.ci/environment.py` takes this file before anything is installed.
"""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Mapping

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


def uv_environment_beside(python: str) -> dict[str, str]:
    """The environment in which uv uses the indexes of that Python's own pip."""
    listing = subprocess.run(  # noqa: S603
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    return uv_environment(pip_settings(listing), os.environ)
