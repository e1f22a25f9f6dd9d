"""Walks docs/start-gpu.md from its first command: every block, in an empty home, with SGLang on the CPU.

    python tests/lab start-gpu-page --folder FOLDER

The checkout is cloned at its last commit. Only packages' caches are taken from outside the folder. Prints
what each step took, as a table; exit code 1 if a command fails.

    python tests/lab start-gpu-page --folder FOLDER --on-gpu [--flags "--load-format dummy"]

On a GPU, where pdmuxd is on the path, and SGLang and the page's model are where the page has them: all but
the installation, with the steps that need a GPU. It must have split at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from page_walks import walked
from start_gpu import INSTALLATION, MODEL, PAGE, blocks, script, seconds

from pdmuxd.daemon.process.ports import free_port

ROOT = PAGE.parents[1]
LONGEST_S = 3600.0


def from_nothing(home: Path) -> tuple[int, str]:
    """All that needs no GPU, from the wheel on."""
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
    return walked(script(chosen, replaced), checkout, environ=given, longest_s=LONGEST_S, installed=False)


def on_gpu(home: Path, flags: str) -> tuple[int, str]:
    """All but the installation; then whether it split."""
    chosen = [block for block in blocks() if block.step not in (*INSTALLATION, "No GPU")]
    split = 'pdmuxd_decisions_total{mode="split",reason="best_fit"}'
    seen = f"curl -sS http://127.0.0.1:8081/metrics | grep -F '{split}'"
    given = {"PDMUXD_ENGINE__SGLANG__EXTRA_ARGS": flags}
    return walked(script(chosen, {}, last=seen), home, environ=given, longest_s=LONGEST_S)


def main() -> None:
    """Clone, walk, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="an empty folder, which becomes the home")
    parser.add_argument("--on-gpu", action="store_true", help="what is installed is used, on its GPU")
    parser.add_argument("--flags", default="", help="SGLang's own, with --on-gpu")
    args = parser.parse_args()
    home = args.folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    if any(home.iterdir()):
        sys.exit(f"--folder: {home} is not empty")
    code, shown = on_gpu(home, args.flags) if args.on_gpu else from_nothing(home)
    took = seconds(shown)
    print("| step | command | seconds |\n|---|---|---:|")
    for block in blocks():
        first = next(line for line in block.commands.splitlines() if line.strip()).rstrip("\\ ")
        what = f"{took[block.step]:.1f}" if block.step in took else f"{block.said}"
        print(f"| {block.step} | `{first}` | {what} |")
    print(f"\nexit code {code}; what was said is in a file `said` under {home}")
    sys.exit(code != 0)


if __name__ == "__main__":
    main()
