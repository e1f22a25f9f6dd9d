"""Stock clients of other projects against a node on the emulated engine: what each can do, as a table.

    python tests/lab stock-clients --folder FOLDER

Their pins conflict with others', so they have an environment of their own, made in FOLDER once with uv
and the newest versions. Java's client is asked too where there is a JDK. Exit code 1 if a call fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from daemon_process import Daemon

CLIENTS = Path(__file__).parent / "clients"
PACKAGES = (
    "litellm",
    "instructor",
    "pydantic-ai-slim[openai]",
    "openai-agents",
    "langchain-openai",
    "langchain-anthropic",
    "llama-index-llms-openai-like",
)


def environment(folder: Path) -> Path:
    """The Python that has the clients."""
    python = folder / "venv" / "bin" / "python"
    if not python.is_file():
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
        subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *PACKAGES], check=True)
    return python


def ask(command: list[str], daemon: Daemon) -> list[dict[str, str | None]]:
    """What each call said; the end of its log where the client itself failed."""
    wanted = {"BASE_URL": daemon.data_url, "KEY": daemon.key, "MODEL": daemon.model}
    done = subprocess.run(command, env=os.environ | wanted, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    """Make the environment, ask, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the clients' environment is kept")
    python = environment(parser.parse_args().folder.absolute())
    with tempfile.TemporaryDirectory() as name:
        daemon = Daemon(Path(name))
        try:
            answers = ask([str(python), str(CLIENTS / "ask.py")], daemon)
            if shutil.which("java"):
                answers += ask(["java", str(CLIENTS / "Ask.java")], daemon)
        finally:
            daemon.stop()
    print("| client | call | |\n|---|---|---|")
    for each in answers:
        print(f"| {each['client']} {each['version']} | {each['call']} | {each['problem'] or 'yes'} |")
    sys.exit(any(each["problem"] for each in answers))


if __name__ == "__main__":
    main()
