"""The commands of a page of the documentation, run in one shell as a reader would."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def walked(
    script: str, folder: Path, *, environ: Mapping[str, str], longest_s: float, installed: bool = True
) -> tuple[int, str]:
    """The exit code of the script, and what it said; it ends at its first error.

    This environment's commands come first on its path if they are `installed`, else nowhere, and no setting
    of pdmuxd is inherited. A daemon that a failed walk has left is killed.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PDMUXD_")}
    here = str(Path(sys.executable).parent)
    others = [place for place in os.environ["PATH"].split(os.pathsep) if place != here]
    path = {"PATH": os.pathsep.join([here, *others] if installed else others)}
    with (folder / "said").open("w") as out:
        walk = subprocess.Popen(
            ["bash", "-c", "set -ex\n" + script],
            cwd=folder,
            env={**kept, **environ, **path},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = walk.wait(longest_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(walk.pid, signal.SIGKILL)
    return code, (folder / "said").read_text()
