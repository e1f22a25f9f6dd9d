"""Stock clients that are command lines: each is run as its own documentation shows it.

Each has an environment of its own, since their pins conflict.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from daemon_process import Daemon

PATIENCE_S = 300.0
LOCUST = """
import os
from locust import HttpUser, task

class Chat(HttpUser):
    @task
    def chat(self):
        turns = [{"role": "user", "content": "Hi."}]
        body = {"model": os.environ["MODEL"], "max_tokens": 8, "messages": turns}
        headers = {"Authorization": "Bearer " + os.environ["KEY"]}
        self.client.post("/v1/chat/completions", json=body, headers=headers)
"""


@dataclass(frozen=True)
class Node:
    """What a client is told, and where it may write."""

    daemon: Daemon
    folder: Path
    environment: Path
    """The folder of the programs."""

    @property
    def v1(self) -> str:
        return f"{self.daemon.data_url}/v1"


def run(node: Node, *command: str, **variables: str) -> str:
    """What a client wrote. Raises: RuntimeError with its last lines if it failed."""
    program, *words = command
    given = {"BASE_URL": node.daemon.data_url, "KEY": node.daemon.key, "MODEL": node.daemon.model}
    done = subprocess.run(
        [str(node.environment / program), *words],
        cwd=node.folder,
        env=os.environ | given | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )
    said = done.stdout + done.stderr
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {said[-1500:]}")
    return said


def llm(node: Node) -> dict[str, Callable[[], object]]:
    """Simon Willison's command line."""
    model = {"model_id": "node", "model_name": node.daemon.model, "api_base": node.v1, "api_key_name": "node"}
    wanted = [model | {"supports_schema": True, "supports_tools": True}]
    (node.folder / "extra-openai-models.yaml").write_text(json.dumps(wanted))

    def ask(*words: str) -> str:
        return run(
            node, "llm", "-m", "node", "--key", node.daemon.key, *words, LLM_USER_PATH=str(node.folder)
        )

    return {
        "plain": lambda: ask("--no-stream", "-o", "max_tokens", "20", "Hi."),
        "streamed": lambda: ask("-o", "max_tokens", "20", "Hi."),
        "schema": lambda: json.loads(ask("--no-stream", "--schema", "name, age int", "Invent a dog.")),
    }


def locust(node: Node) -> dict[str, Callable[[], object]]:
    """Load for some seconds; its exit code is 1 if a request failed."""
    (node.folder / "locustfile.py").write_text(LOCUST)
    words = ("--headless", "--users", "2", "--spawn-rate", "2", "--run-time", "5s", "--only-summary")
    return {"load": lambda: run(node, "locust", *words, "--host", node.daemon.data_url)}


COMMANDS: Mapping[str, tuple[tuple[str, ...], Callable[[Node], dict[str, Callable[[], object]]]]] = {
    "llm": (("llm",), llm),
    "locust": (("locust",), locust),
}
"""By package: what to install, and the client's calls."""


def ask_all(daemon: Daemon, environments: Mapping[str, Path]) -> Iterator[dict[str, str | None]]:
    """What each call of each client that has an environment said."""
    for package, programs in environments.items():
        asked = [
            str(programs / "python"),
            "-c",
            f"from importlib.metadata import version as v; print(v('{_name(package)}'))",
        ]
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        with tempfile.TemporaryDirectory() as name:
            node = Node(daemon, Path(name), programs)
            for call, ask in COMMANDS[package][1](node).items():
                problem = None
                try:
                    if not ask():
                        problem = "an empty answer"
                except (
                    RuntimeError,
                    OSError,
                    ValueError,
                    subprocess.SubprocessError,
                ) as error:
                    problem = f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"
                yield {"client": package, "version": found, "call": call, "problem": problem}


def _name(package: str) -> str:
    return package.partition("[")[0]
