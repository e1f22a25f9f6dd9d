"""A plugin for SGLang beside pdmuxd's, for the servers of one measurement or test alone."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, module: str) -> dict[str, str]:
    """Make a distribution in `folder` that SGLang finds the plugin by, whose `register` is in `module`; the
    environment of a server that loads it.
    """
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{name} = {module}:register\n")
    return {"SGLANG_PLUGINS": name, "PYTHONPATH": str(folder)}
