"""One list of requests of every path, sent through the gateway: how an engine's answers differ from SGLang's.

    python tests/lab conformance [--python PYTHON] [--write FILE] [--only TEXT]

Without PYTHON, which has SGLang (`make install-sglang`), the emulated engine answers; with it, SGLang on the
CPU. What differs from the recording is printed; exit code 1 if that is not in the list of differences.
`--write` keeps the answers as a recording. `--only`: the cases whose name has this text, with their shapes.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from conformity.differences import judge
from conformity.run import all_cases, ask_all, differences, recorded, write
from daemon_process import Daemon
from tiny_sglang import on_sglang

VERSION = "from importlib.metadata import version; print(version('sglang'))"


def main() -> None:
    """Start a daemon, ask, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", type=Path, help="a Python with SGLang; without one, the emulated engine")
    parser.add_argument("--write", type=Path, help="a file for the answers")
    parser.add_argument("--only", default="", help="a part of cases' names")
    wanted = parser.parse_args()
    cases = [case for case in all_cases() if wanted.only in case.name]
    with tempfile.TemporaryDirectory() as name:
        folder, given, engine = Path(name), {"settings": []}, "emulated"
        if wanted.python is not None:
            given = on_sglang(wanted.python.absolute(), folder)
            asked = [str(wanted.python), "-P", "-c", VERSION]
            engine = (
                "sglang " + subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
            )
        given["settings"].append("log.level=warning")
        daemon = Daemon(folder, **given)
        try:
            before, started_s = daemon.engine()["pid"], time.monotonic()
            shapes = ask_all(daemon, cases)
            took_s, after = time.monotonic() - started_s, daemon.engine()["pid"]
        finally:
            daemon.stop()
    print(f"{len(shapes)} cases in {took_s:.0f} s; the engine's pid {before} -> {after}")
    if wanted.write is not None:
        write(shapes, {"engine": engine, "python": platform.python_version()}, wanted.write)
        return
    if wanted.only:
        for name, shape in shapes.items():
            print(f"{name}\n  {json.dumps(shape)}")
    found = differences(shapes, {name: recorded()[name] for name in shapes})
    unlisted, gone = (list(found), []) if wanted.python is not None or wanted.only else judge(found)
    for case, place, here, there in unlisted:
        print(f"{case} | {place}: {json.dumps(here)}, recorded {json.dumps(there)}")
    for each in gone:
        print(f"listed as different, and is not: {each}")
    sys.exit(bool(unlisted or gone))


if __name__ == "__main__":
    main()
