"""The daemon under attack: started again when it is killed, with what was acknowledged kept beside."""

from __future__ import annotations

import math
import os
import signal
import time

import httpx
import psutil
from daemon_process import Daemon

_DOWN_GRACE_S = 1.0
SETTINGS = ("engine.restart_backoff_max_s=2",)


class Site:
    """One state directory and the daemon on it."""

    def __init__(self, folder):
        self.folder = folder
        self.state_dir = folder / ".pdmuxd"
        self._downs = []
        self.acknowledged = {}
        """Per tenant, the target that was acknowledged last, and those whose fate is not known since."""
        self.daemon = Daemon(folder, settings=SETTINGS)
        self.key = self.daemon.key
        self.data_url, self.admin_url, self.model = (
            self.daemon.data_url,
            self.daemon.admin_url,
            self.daemon.model,
        )
        self.token = self.daemon.token

    @property
    def pid(self):
        """Of the daemon that holds the state directory."""
        return int((self.state_dir / "lock").read_text().split()[0])

    def kill_daemon(self):
        """SIGKILL, and another one on the same ports."""
        down = [time.monotonic(), math.inf]
        self._downs.append(down)
        os.kill(self.pid, signal.SIGKILL)
        self.daemon.process.kill()
        self.daemon.wait()
        ports = [f"{name}.port={url.rpartition(':')[2]}" for name, url in self._urls]
        self.daemon = Daemon(self.folder, key=self.key, settings=(*ports, *SETTINGS))
        down[1] = time.monotonic()

    @property
    def _urls(self):
        return (("data", self.data_url), ("admin", self.admin_url))

    def was_down_between(self, began_s, ended_s):
        """Whether the daemon was killed, or not back yet, while a request was in flight."""
        return any(began_s < up_s + _DOWN_GRACE_S and ended_s > down_s for down_s, up_s in self._downs)

    def admin(self, method, path, **options):
        """None if the daemon cannot be reached."""
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            return httpx.request(
                method,
                f"{self.admin_url}/api/v1{path}",
                headers=headers,
                timeout=30,
                trust_env=False,
                **options,
            )
        except httpx.HTTPError:
            return None

    def engine(self):
        """As REST shows it; {} if the daemon cannot be reached."""
        answer = self.admin("GET", "/engine")
        return answer.json() if answer is not None and answer.status_code == 200 else {}

    def edit_slo(self, tbt_ms):
        """Set the target, and remember what is known of it."""
        body = {
            "ttft_fixed_ms": 500.0,
            "ttft_per_1k_new_tokens_ms": 800.0,
            "tbt_ms": tbt_ms,
            "attainment_ratio": 0.99,
        }
        answer = self.admin("PUT", "/tenants/default/slo", json=body)
        known, _ = self.acknowledged.get("default", (None, set()))
        if answer is not None and answer.is_success:
            self.acknowledged["default"] = (tbt_ms, set())
        elif answer is None:
            # It may have been made or not.
            self.acknowledged["default"] = (
                known,
                self.acknowledged.get("default", (None, set()))[1] | {tbt_ms},
            )

    def lost_edit(self):
        """What is wrong with the stored target; None if nothing is, or it cannot be read now."""
        answer = self.admin("GET", "/tenants/default/slo")
        known, possible = self.acknowledged.get("default", (None, set()))
        if answer is None or not answer.is_success or known is None:
            return None
        found = answer.json()["tbt_ms"]
        return None if found == known or found in possible else f"acknowledged {known}, found {found}"

    def memory_mib(self):
        """Resident, of the daemon."""
        return psutil.Process(self.pid).memory_info().rss / 2**20

    def descriptors(self):
        """Open in the daemon."""
        return psutil.Process(self.pid).num_fds()
