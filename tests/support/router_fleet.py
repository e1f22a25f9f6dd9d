"""Three nodes behind a router that is started as docs/routers.md says, load, and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
from daemon_process import Daemon, wait_until
from postgres_server import PostgresServer, find_programs

from pdmuxd.daemon.process.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "routers.md"
NODES = 3
TOKENS = 100
"""Of an answer: about a second of the emulated engine, so that some are under way whenever something ends."""
RATE, FLOOD = {"sglang": 4.0, "litellm": 1.0}, {"sglang": 20.0, "litellm": 4.0}
"""Requests a second of the other tenant, and of those who do wrong: as many as the router can pass on on two
cores beside the nodes."""
LIMIT = 30
BEFORE_S, AFTER_S, FROZEN_S = 1.5, 3.0, 5.0
ANSWER_S = 60
MASTER_KEY = "sk-master"


def router_python() -> str | None:
    """A Python that has sglang-router: $PYTHON_ROUTERS, or this one; None if neither has it."""
    named = os.environ.get("PYTHON_ROUTERS")
    return named or (sys.executable if find_spec("sglang_router") else None)


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request ended."""

    began_s: float
    ended_s: float
    status: int | None
    wrong: str | None
    """What came in place of a whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the other tenant's requests met while something went wrong at `at_s`."""

    what: str
    answers: Sequence[Answer]
    at_s: float
    in_flight: int
    """On the node that was lost, when it was."""
    others: Sequence[Answer] = ()
    """Of those who did wrong."""

    @property
    def lost_in_flight(self) -> list[Answer]:
        return [one for one in self.answers if one.wrong and one.began_s <= self.at_s]

    @property
    def lost_later(self) -> list[Answer]:
        return [one for one in self.answers if one.wrong and one.began_s > self.at_s]

    @property
    def slowest_s(self) -> float:
        return max(one.ended_s - one.began_s for one in self.answers)


class Load:
    """Streams at a steady rate, each in a thread of its own, from `with` to its end."""

    def __init__(self, fleet: Fleet, key: str, rate: float, tokens: int = TOKENS) -> None:
        self.answers: list[Answer] = []
        self._fleet, self._key, self._period_s, self._tokens = fleet, key, 1.0 / rate, tokens
        self._stop = threading.Event()
        self._asking: list[threading.Thread] = []
        self._pacing = threading.Thread(target=self._pace)
        self._http = httpx.Client(timeout=ANSWER_S, limits=httpx.Limits(max_connections=500))

    def __enter__(self) -> Load:
        self._pacing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in (self._pacing, *self._asking):
            thread.join()
        self._http.close()

    def _pace(self) -> None:
        next_s = time.monotonic()
        while not self._stop.wait(max(0.0, next_s - time.monotonic())):
            next_s += self._period_s
            thread = threading.Thread(target=self._ask)
            thread.start()
            self._asking.append(thread)

    def _ask(self) -> None:
        began_s, status, wrong = time.monotonic(), None, None
        try:
            body, headers = self._fleet.asked(self._key, self._tokens)
            url = f"{self._fleet.url}/v1/completions"
            with self._http.stream("POST", url, json=body, headers=headers) as response:
                status = response.status_code
                text = "".join(response.iter_text())
            if status != 200 or not text.rstrip().endswith("data: [DONE]") or '"error"' in text:
                wrong = f"{status} {text[-300:]}"
        except httpx.HTTPError as error:
            wrong = repr(error)
        self.answers.append(Answer(began_s, time.monotonic(), status, wrong))


class Fleet:
    """The nodes, a tenant `other` with a key, a tenant `limited` that has a limit, and a router."""

    def __init__(self, folder: Path, router: str, python: str) -> None:
        self._stack = contextlib.ExitStack()
        self._router = router
        self.rate, self.flood = RATE[router], FLOOD[router]
        try:
            programs = find_programs()
            assert programs is not None, "needs PostgreSQL: apt-get install postgresql"
            server = self._stack.enter_context(contextlib.closing(PostgresServer(programs)))
            environ = {"PDMUXD_DATABASE_URL": server.new_database()}
            self.nodes = [self._node(folder / f"node {number}", environ) for number in range(NODES)]
            self.other, self.limited = self._tenant("other"), self._tenant("limited")
            limits = {"requests_per_min": {"value": LIMIT}}
            first = self.nodes[0]
            assert first.admin("PATCH", "/api/v1/tenants/limited/limits", json=limits).status_code == 200
            self.url = f"http://127.0.0.1:{free_port()}"
            self._log = folder / "router.log"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command(folder, python), cwd=folder, stdout=log, stderr=subprocess.STDOUT
                )
            self._stack.callback(self._end_router)
            wait_until(self._serves, within_s=150)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything."""
        self._stack.close()

    def asked(self, key: str, tokens: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Body and headers of a request with a tenant's key, as this router takes it."""
        body = {
            "model": self.nodes[0].model,
            "prompt": "word " * 50,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        if self._router == "litellm":
            return {**body, "api_key": key}, {"Authorization": f"Bearer {MASTER_KEY}"}
        return body, {"Authorization": f"Bearer {key}"}

    def in_flight(self, node: Daemon) -> int:
        """Requests that a node works on."""
        return int(node.metric('pdmuxd_requests_in_flight{tenant="other"}'))

    def _node(self, folder: Path, environ: dict[str, str]) -> Daemon:
        folder.mkdir()
        settings = (
            "data.load_metrics=true",
            "data.trusted_peers=127.0.0.1",
            "engine.restart_backoff_initial_s=0.1",
        )
        node = Daemon(folder, environ=environ, settings=settings)
        self._stack.callback(_stop, node)
        return node

    def _tenant(self, name: str) -> str:
        first = self.nodes[0]
        assert first.admin("POST", "/api/v1/tenants", json={"name": name}).status_code == 201
        key = first.admin("POST", f"/api/v1/tenants/{name}/keys", json={}).json()["secret"]
        for node in self.nodes:
            headers = {"Authorization": f"Bearer {key}"}
            url = f"{node.data_url}/v1/models"
            wait_until(lambda url=url, headers=headers: httpx.get(url, headers=headers).status_code == 200)
        return str(key)

    def _command(self, folder: Path, python: str) -> list[str]:
        host, port = "127.0.0.1", self.url.rpartition(":")[2]
        if self._router == "litellm":
            (folder / "litellm.yaml").write_text(self._litellm_config())
            program = str(Path(python).with_name("litellm"))
            return [program, "--config", "litellm.yaml", "--host", host, "--port", port]
        block = re.search(r"```sh\npython (-m sglang_router.*?)```", PAGE.read_text(), re.DOTALL)
        assert block is not None
        words = block[1].replace("\\\n", " ").split()
        urls = [word for word in words if word.startswith("http://")]
        at = words.index(urls[0])
        words = [word for word in words if word not in urls]
        words[at:at] = [node.data_url for node in self.nodes]
        return [python, *words, "--host", host, "--port", port]

    def _litellm_config(self) -> str:
        model = self.nodes[0].model
        entries = "".join(
            f"  - model_name: {model}\n"
            f"    litellm_params: {{model: openai/{model}, api_base: '{node.data_url}/v1', api_key: none,\n"
            f"      configurable_clientside_auth_params: ['api_key']}}\n"
            for node in self.nodes
        )
        return (
            f"model_list:\n{entries}"
            "router_settings: {routing_strategy: simple-shuffle, num_retries: 3, allowed_fails: 1, "
            "cooldown_time: 10}\n"
            f"general_settings: {{master_key: {MASTER_KEY}}}\n"
        )

    def _serves(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        body, headers = self.asked(self.other, 1)
        with contextlib.suppress(httpx.HTTPError):
            url = f"{self.url}/v1/completions"
            return httpx.post(url, json=body, headers=headers, timeout=ANSWER_S).status_code == 200
        return False

    def _end_router(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _stop(node: Daemon) -> None:
    if node.is_up:
        node.signal(signal.SIGCONT)
        node.stop()
    else:
        node.wait()


def _fault(fleet: Fleet, what: str, node: Daemon | None, act: Callable[[], object]) -> Found:
    """The other tenant's load before, during and after it."""
    with Load(fleet, fleet.other, fleet.rate) as load:
        time.sleep(BEFORE_S)
        in_flight = 0 if node is None else fleet.in_flight(node)
        at_s = time.monotonic()
        act()
        time.sleep(AFTER_S)
    return Found(what=what, answers=load.answers, at_s=at_s, in_flight=in_flight)


def _flood(fleet: Fleet, what: str, key: str, seconds: float) -> Found:
    with Load(fleet, fleet.other, fleet.rate) as load, Load(fleet, key, fleet.flood, tokens=2) as wrong:
        at_s = time.monotonic()
        time.sleep(seconds)
    return Found(what=what, answers=load.answers, at_s=at_s, in_flight=0, others=wrong.answers)


def faults(fleet: Fleet, flood_s: float = 10.0) -> Iterator[Found]:
    """One after the other, each with all nodes back as they were; a node is killed last."""
    first, second, third = fleet.nodes

    def healthy() -> None:
        wait_until(lambda: all(node.data("GET", "/health").status_code == 200 for node in fleet.nodes))
        time.sleep(1.5)  # until the router has looked

    yield _flood(fleet, "wrong keys", "pdm_wrong", flood_s)
    yield _flood(fleet, "a tenant over its limit", fleet.limited, flood_s)

    def freeze() -> None:
        third.signal(signal.SIGSTOP)
        time.sleep(FROZEN_S)
        third.signal(signal.SIGCONT)

    yield _fault(fleet, "a frozen daemon", third, freeze)
    healthy()
    yield _fault(fleet, "a drain", first, lambda: first.admin("POST", "/api/v1/engine/drain", json={}))
    first.admin("POST", "/api/v1/engine/resume", json={})
    healthy()
    command = [*second.command[:-2], "upgrade"]
    run = lambda: subprocess.run(command, cwd=second.folder, check=True, capture_output=True, timeout=120)  # noqa: E731
    yield _fault(fleet, "an upgrade", second, run)
    healthy()
    pid = third.engine()["pid"]
    yield _fault(fleet, "a killed engine", third, lambda: os.kill(pid, signal.SIGKILL))
    healthy()
    yield _fault(fleet, "a killed daemon", first, lambda: first.signal(signal.SIGKILL))
