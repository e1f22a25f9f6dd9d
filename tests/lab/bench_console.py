"""What the console costs: its first paint, and its share of a core while it is updated ten times a second.

    make bench-console

The real console against a real daemon whose emulated engine is under load. First paint is from the start of
the process to the first screen; the share is of the console's process alone in tmux, from /proc, which tmux's
own work is not part of. With 200 events/s the load comes from the engine too: every
decision is an event, up to twenty in 100 ms.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from steady_load import steady_load

SIZES = ((80, 24), (120, 40), (200, 60))
SETTLE_S, MEASURED_S = 5.0, 20.0
STARTS = 5
SETTINGS = ["--set", "state_dir=.pdmuxd", "--set", "data.port=0", "--set", "admin.port=0"]


def main() -> None:
    """Start a daemon, load it, measure, print a table."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *SETTINGS, "serve", "--first-run"]
        with subprocess.Popen(
            command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as daemon:
            try:
                measure(place, *welcome(daemon))
            finally:
                daemon.terminate()


def welcome(daemon: subprocess.Popen[str]) -> tuple[str, str, str, str]:
    """The data plane, the admin plane, a key, the model."""
    said = ""
    assert daemon.stdout is not None
    for line in daemon.stdout:
        said += line
        if line.lstrip().startswith("curl "):
            break
    patterns = (r"data plane +(\S+)", r"admin plane +(\S+)", r"^ +(pdm_\S+)$", r"model (\S+)\)")
    found = [re.search(pattern, said, re.MULTILINE) for pattern in patterns]
    data, admin, key, model = (match[1] for match in found if match is not None)
    return data, admin, key, model


def measure(place: str, data_url: str, admin_url: str, key: str, model: str) -> None:
    """First paint while idle, then the share of a core at each size under load."""
    paints, computed = zip(*(first_paint_s(place, admin_url) for _ in range(STARTS)), strict=True)
    print(f"first paint, s: median {statistics.median(paints):.2f}, worst {max(paints):.2f} of {STARTS}")
    print(f"computed until then, s: median {statistics.median(computed):.2f}")
    with steady_load(data_url, key, model, users=16):
        for width, height in SIZES:
            terminal(place, admin_url, width, height)
            time.sleep(SETTLE_S)
            pid = int(tmux(place, "list-panes", "-t", "bench", "-F", "#{pane_pid}"))
            before_s = cpu_s(pid)
            time.sleep(MEASURED_S)
            share = (cpu_s(pid) - before_s) / MEASURED_S
            print(f"{width}x{height}: {share:.1%} of a core")
            tmux(place, "kill-server")


def first_paint_s(place: str, admin_url: str) -> tuple[float, float]:
    """Until the tabs are there: by the clock, and of the process itself, whatever else the machine does.

    On a bare pseudo-terminal, and stopped as soon as they come: what is imported after them is not counted.
    """
    width, height = SIZES[0]
    started_s = time.perf_counter()
    pid, terminal_fd = pty.fork()
    if not pid:
        os.chdir(place)
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, console(admin_url))
    fcntl.ioctl(terminal_fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    shown = b""
    while b"Overview" not in shown:
        shown += os.read(terminal_fd, 65536)
    os.kill(pid, signal.SIGSTOP)
    taken_s = time.perf_counter() - started_s
    computed_s = cpu_s(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal_fd)
    return taken_s, computed_s


def console(admin_url: str) -> list[str]:
    """The command."""
    return [sys.executable, "-m", "pdmuxd.daemon.cli.main", *SETTINGS, "top", "--url", admin_url]


def terminal(place: str, admin_url: str, width: int, height: int) -> None:
    """The console in a terminal."""
    size = ["-x", str(width), "-y", str(height)]
    tmux(place, "new-session", "-d", "-s", "bench", *size, "-c", place, *console(admin_url))


def tmux(place: str, *words: str) -> str:
    """One command of a server of its own."""
    environ = {name: value for name, value in os.environ.items() if name != "TMUX"}
    command = ["tmux", "-S", f"{place}/tmux", "-f", os.devnull, *words]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout
    if words == ("kill-server",):
        while subprocess.run([*command[:3], "ls"], check=False, capture_output=True).returncode == 0:
            time.sleep(0.05)
        Path(place, "tmux").unlink(missing_ok=True)
    return out


def cpu_s(pid: int) -> float:
    """Seconds that a process has computed so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


if __name__ == "__main__":
    main()
