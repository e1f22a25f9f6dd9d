"""Walks docs/start-gpu.md from its first command: every block, in an empty home, with SGLang on the CPU.

    python tests/lab start-gpu-page --folder FOLDER

The checkout is cloned at its last commit. Only packages' caches are taken from outside the folder. Prints
what each step took, as a table; exit code 1 if a command fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from page_walks import walked
from start_gpu import MODEL, PAGE, blocks, script, seconds

from pdmuxd.daemon.process.ports import free_port

ROOT = PAGE.parents[1]
LONGEST_S = 3600.0


def main() -> None:
    """Clone, walk, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="an empty folder, which becomes the home")
    home = parser.parse_args().folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    if any(home.iterdir()):
        sys.exit(f"--folder: {home} is not empty")
    checkout = home / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    data, admin = free_port(), free_port()
    replaced = {MODEL: "~/tiny", MODEL.rpartition("/")[2]: "tiny", "127.0.0.1:8080": f"127.0.0.1:{data}"}
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    given = {
        "HOME": str(home),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(cache / "uv")),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(cache / "pip")),
        "PDMUXD_DATA__PORT": str(data),
        "PDMUXD_ADMIN__PORT": str(admin),
    }
    chosen = [block for block in blocks() if block.said.startswith("tested")]
    code, shown = walked(
        script(chosen, replaced), checkout, environ=given, longest_s=LONGEST_S, installed=False
    )
    took = seconds(shown)
    print("| step | command | seconds |\n|---|---|---:|")
    for block in blocks():
        first = next(line for line in block.commands.splitlines() if line.strip()).rstrip("\\ ")
        what = f"{took[block.step]:.1f}" if block.step in took else f"{block.said}"
        print(f"| {block.step} | `{first}` | {what} |")
    print(f"\nexit code {code}; what was said is in {checkout / 'said'}")
    sys.exit(code != 0)


if __name__ == "__main__":
    main()
