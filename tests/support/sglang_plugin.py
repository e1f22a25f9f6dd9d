"""A plugin of a test's or a script's own for SGLang, beside pdmuxd's."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def install(folder: Path, name: str, module: str, files: Iterable[Path]) -> dict[str, str]:
    """Make a distribution in `folder` that SGLang finds the plugin by, whose `register` is in `module`; the
    environment of a server that loads it.

    The files are copied: what else is in their folders has names that something else may want to import.
    """
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{name} = {module}:register\n")
    for path in files:
        shutil.copy(path, folder)
    return {"SGLANG_PLUGINS": name, "PYTHONPATH": str(folder)}
