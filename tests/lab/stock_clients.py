"""Stock clients of other projects against a node on the emulated engine: what each can do, as a table.

    python tests/lab stock-clients --folder FOLDER [--python PYTHON] [--only NAME]...

With PYTHON, which has SGLang (`make install-sglang`), SGLang on the CPU answers; its weights are random.

Clients' pins conflict with others', so they have environments of their own, made in FOLDER once with uv and
the newest versions. Other languages' own HTTP clients are asked too where Debian's packages of them are
(nodejs, golang-go, a JDK, mono-mcs), and OpenAI's client for JavaScript. Exit code 1 if a call fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from clients.commands import COMMANDS, ask_all
from daemon_process import Daemon
from tiny_sglang import on_sglang

CLIENTS = Path(__file__).parent / "clients"
LANGUAGES = {
    "curl": "sh ask.sh",
    "node": "node ask.mjs",
    "go": "go run ask.go",
    "java": "java Ask.java",
    "mcs": "mcs -r:System.Net.Http.dll -out:{folder}/ask.exe Ask.cs && mono {folder}/ask.exe",
}
"""By the program that must be there, what is run in CLIENTS; `folder` may be written to."""
PACKAGES = (
    "litellm",
    "instructor",
    "pydantic-ai-slim[openai]",
    "openai-agents",
    "langchain-openai",
    "langchain-anthropic",
    "llama-index-llms-openai-like",
    "dspy",
)
LIBRARIES = "libraries"


def made(folder: Path, packages: tuple[str, ...]) -> Path:
    """The folder of an environment's programs."""
    programs = folder / "bin"
    if not (programs / "python").is_file():
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, folder], check=True)
        python = str(programs / "python")
        subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *packages], check=True)
    return programs


def ask(command: str, daemon: Daemon, folder: Path) -> list[dict[str, str | None]]:
    """What each call said. Exits with the end of its log where the client itself failed."""
    wanted = {"BASE_URL": daemon.data_url, "KEY": daemon.key, "MODEL": daemon.model}
    wanted["NODE_PATH"] = str(folder / "node_modules")
    command = command.format(folder=shlex.quote(str(folder)))
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=CLIENTS,
        env=os.environ | wanted,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def answers(daemon: Daemon, folder: Path, names: list[str]) -> Iterator[dict[str, str | None]]:
    """What each call of these clients said."""
    if LIBRARIES in names:
        python = made(folder / LIBRARIES, PACKAGES) / "python"
        yield from ask(f"{shlex.quote(str(python))} ask.py", daemon, folder)
    if shutil.which("npm") and not (folder / "node_modules").is_dir():
        subprocess.run(["npm", "install", "--silent", "--prefix", folder, "openai"], check=True)
    for program, command in LANGUAGES.items():
        if program in names and shutil.which(program):
            yield from ask(command, daemon, folder)
    environments = {
        name: made(folder / name.partition("[")[0], packages)
        for name, (packages, _) in COMMANDS.items()
        if name in names
    }
    yield from ask_all(daemon, environments)


def main() -> None:
    """Make the environments, ask, and print a table."""
    known = [LIBRARIES, *LANGUAGES, *COMMANDS]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the clients' environments are kept")
    parser.add_argument("--python", type=Path, help="a Python with SGLang; without one, the emulated engine")
    parser.add_argument("--only", action="append", choices=known, help="these clients alone")
    wanted = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        given = {} if wanted.python is None else on_sglang(wanted.python.absolute(), Path(name))
        daemon = Daemon(Path(name), **given)
        try:
            print("| client | call | |\n|---|---|---|")
            for each in answers(daemon, wanted.folder.absolute(), wanted.only or known):
                said = each["problem"] or "yes"
                print(f"| {each['client']} {each['version']} | {each['call']} | {said} |", flush=True)
                failed |= said != "yes"
        finally:
            daemon.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
