"""A plugin of a test's own for SGLang, from files that are not on its path."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from gpu_servers import sglang_plugin


def install(folder: Path, name: str, module: str, files: Iterable[Path]) -> dict[str, str]:
    """As the measurements do it; the files are copied, since what else is in their folders has names that
    something else may want to import."""
    for path in files:
        shutil.copy(path, folder)
    return sglang_plugin.install(folder, name, module)
