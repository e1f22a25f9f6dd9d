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


def tokenizer(node: Node) -> str:
    """A folder with the tokenizer of the model: the emulated engine's is downloaded."""
    answer = node.daemon.data("GET", "/tokenizer.json")
    if answer.status_code == 200:
        folder = node.folder / "tokenizer"
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes(answer.content)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        return str(folder)
    setting = "engine.sglang.model="
    return next(word.removeprefix(setting) for word in node.daemon.command if word.startswith(setting))


def aider(node: Node) -> dict[str, Callable[[], object]]:
    """A coding agent: one turn, with its own edit format."""
    words = ("--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update", "--map-tokens", "0")
    api = ("--openai-api-base", node.v1, "--openai-api-key", node.daemon.key)
    ask = ("--model", f"openai/{node.daemon.model}", "--message", "Say something.", "--analytics-disable")

    def turn(*more: str) -> str:
        said = run(node, "aider", *words, *api, *ask, *more, LITELLM_LOCAL_MODEL_COST_MAP="True")
        if "Tokens:" not in said:
            raise RuntimeError(said[-1500:])
        return said

    return {"streamed": turn, "whole": lambda: turn("--no-stream")}


def guidellm(node: Node) -> dict[str, Callable[[], object]]:
    """Six requests of synthetic prompts, two at a time."""
    folder = tokenizer(node)

    def load() -> str:
        return run(
            node,
            *("guidellm", "run", "--disable-console-interactive"),
            *("--backend", f"kind=openai_http,target={node.daemon.data_url},api_key={node.daemon.key}"),
            *("--tokenizer", f"kind=hf_auto,model={folder}"),
            *("--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6"),
            *("--data", "kind=synthetic_text,prompt_tokens=40,output_tokens=8"),
            *("--output", "kind=json,path=report.json"),
            HF_HUB_OFFLINE="1",
        )

    return {"load": load}


def aiperf(node: Node) -> dict[str, Callable[[], object]]:
    """Six streamed requests of synthetic prompts, two at a time."""
    folder = tokenizer(node)
    words = ("--request-count", "6", "--concurrency", "2", "--ui", "none", "--tokenizer", folder)
    lengths = ("--prompt-input-tokens-mean", "40", "--prompt-output-tokens-mean", "8")

    def load(*kind: str) -> str:
        node_words = ("--url", node.daemon.data_url, "--api-key", node.daemon.key, "-m", node.daemon.model)
        # With HF_HUB_OFFLINE it takes no tokenizer from a folder.
        return run(node, "aiperf", "profile", *node_words, *kind, *words, *lengths)

    return {
        "chat, streamed": lambda: load("--endpoint-type", "chat", "--streaming"),
        "completions": lambda: load("--endpoint-type", "completions"),
    }


COMMANDS: Mapping[str, tuple[tuple[str, ...], Callable[[Node], dict[str, Callable[[], object]]]]] = {
    "llm": (("llm",), llm),
    "locust": (("locust",), locust),
    "aider-chat": (("aider-chat",), aider),
    "guidellm": (("guidellm",), guidellm),
    "aiperf": (("aiperf",), aiperf),
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
