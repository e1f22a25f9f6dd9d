"""The commands of docs/operations.md from an empty node to the first restore, as they stand there."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from pdmuxd.daemon.process.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
TITLE = "## From an empty node to the first restore\n"
LONGEST_S = 600


def commands():
    section = PAGE.read_text().partition(TITLE)[2].partition("\n##")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


def test_the_walk_works_as_it_is_written(folder):
    data, admin = free_port(), free_port()
    ports = {"PDMUXD_DATA__PORT": str(data), "PDMUXD_ADMIN__PORT": str(admin)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PDMUXD_")}
    script = "set -ex\n" + commands().replace("127.0.0.1:8080", f"127.0.0.1:{data}")
    with (folder / "said").open("w") as said:
        walk = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=kept | ports | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = walk.wait(LONGEST_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # a daemon that a failed walk has left
                os.killpg(walk.pid, signal.SIGKILL)
    shown = (folder / "said").read_text()
    assert code == 0, shown + (folder / "serve.log").read_text()
    assert "link_lost" in shown
    assert '"usage"' in shown
    assert (folder / "monitoring" / "prometheus.yml").exists()
