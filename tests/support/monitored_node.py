"""A Prometheus that scrapes a daemon every second, and a load that is more than the emulated GPU holds."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import shutil
import subprocess
import sys
import threading
import time

import aiohttp
import httpx

from pdmuxd.daemon.monitoring.panels import ROWS
from pdmuxd.daemon.process.ports import free_port

PROMETHEUS = shutil.which("prometheus")
RATE_INTERVAL = "10s"


class Prometheus:
    """One process with the files that `pdmuxd monitoring` writes, scraping and evaluating every second."""

    def __init__(self, folder, targets):
        command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", "monitoring", str(folder)]
        flags = [word for target in targets for word in ("--target", target.removeprefix("http://"))]
        subprocess.run([*command, *flags], check=True, capture_output=True)
        config = folder / "prometheus.yml"
        text = (
            config.read_text()
            .replace("interval: 5s", "interval: 1s")
            .replace("interval: 15s", "interval: 1s")
        )
        config.write_text(text)
        rules = folder / "pdmuxd.rules.yml"
        rules.write_text(rules.read_text().replace("interval: 15s", "interval: 1s"))
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def query(self, query, **options):
        """The answer's result; a query that Prometheus refuses is an AssertionError."""
        path = "query_range" if "step" in options else "query"
        answer = httpx.get(f"{self.url}/api/v1/{path}", params={"query": filled(query)} | options, timeout=20)
        assert answer.status_code == 200, f"{query}: {answer.text}"
        return answer.json()["data"]["result"]

    def wait_until_up(self, targets=1):
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            with contextlib.suppress(httpx.TransportError, AssertionError):
                if len(self.query("up == 1")) == targets:
                    return
            time.sleep(0.2)
        raise AssertionError("Prometheus does not scrape the daemon")

    def close(self):
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


def filled(query):
    """A panel's query with the dashboard's variables set as `All` sets them."""
    for name, value in {
        "$__rate_interval": RATE_INTERVAL,
        "$job": "pdmuxd",
        "$instance": ".*",
        "$tenant": ".*",
    }.items():
        query = query.replace(name, value)
    return query


def panels():
    return [panel for row in ROWS.values() for panel in row]


class Load:
    """Open loads of several tenants: (key, rate, prompt tokens, output tokens) each.

    A rate is requests/s, or what they are after so many seconds: {0: 1.0, 40: 12.0}.
    """

    def __init__(self, data_url, *streams, seed=7):
        self._url = data_url + "/generate"
        self._streams = streams
        self._random = random.Random(seed)
        self._tasks = set()
        self._stop = threading.Event()
        self.statuses = []

    def run(self, duration_s):
        asyncio.run(self._run(duration_s))

    @contextlib.contextmanager
    def going(self):
        """In a thread, until the block is left."""
        thread = threading.Thread(target=self.run, args=(math.inf,))
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    async def _run(self, duration_s):
        timeout = aiohttp.ClientTimeout(total=60)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            arrivals = [self._arrive(session, duration_s, *stream) for stream in self._streams]
            await asyncio.gather(*arrivals)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _arrive(self, session, duration_s, key, rate, prompt_tokens, output_tokens):
        rates = rate if isinstance(rate, dict) else {0: rate}
        start_s = time.monotonic()
        while (passed_s := time.monotonic() - start_s) < duration_s and not self._stop.is_set():
            now = rates[max(since_s for since_s in rates if since_s <= passed_s)]
            await asyncio.sleep(self._random.expovariate(now))
            ids = [self._random.randrange(1000, 30000) for _ in range(prompt_tokens)]
            body = {
                "input_ids": ids,
                "stream": True,
                "sampling_params": {"max_new_tokens": output_tokens, "ignore_eos": True},
            }
            task = asyncio.create_task(self._ask(session, key, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, session, key, body):
        async with session.post(self._url, json=body, headers={"Authorization": f"Bearer {key}"}) as answer:
            self.statuses.append(answer.status)
            async for _ in answer.content.iter_any():
                pass
