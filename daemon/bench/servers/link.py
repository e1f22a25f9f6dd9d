"""The daemon's end of the link, for arms with a policy: sets policy and targets, counts what is reported."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec

from pdmuxd.daemon.bench.load.score import quantile
from pdmuxd.daemon.bench.load.workload import DEFAULT_TTFT, TENANT, TtftTarget
from pdmuxd.daemon.bench.servers.server import ArmError
from pdmuxd.engine.core.errors import LinkError
from pdmuxd.engine.link.messages import (
    HOST_DELAY_S,
    Ack,
    EngineSettings,
    EngineStats,
    Hello,
    IterationRecord,
    TenantSlo,
)
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.link.socket import DaemonEnd

_ACK_S = 20.0
_TOTALS = (
    *("steps", "switches", "preemptions", "retractions", "dropped_records"),
    *("stalls", "host_delays"),
)
_KEPT = 50_000


class Link:
    """One engine's reports between two calls of `reset`."""

    def __init__(self, end: DaemonEnd) -> None:
        self._end = end
        self._version = 0
        self._greeted = asyncio.Event()
        self._acks: asyncio.Queue[Ack] = asyncio.Queue()
        self.hello: Hello | None = None
        self.stats: EngineStats | None = None
        self._before: EngineStats | None = None
        self._modes: Counter[str] = Counter()
        self._ratios: dict[str, list[float]] = {}
        """Measured over predicted by what was predicted: decode alone in `split`, the batch in `fused`."""
        self._followed: list[tuple[float, float]] = []
        """Of steps behind another: what the device waited for the host, of what they took."""
        self._records: list[IterationRecord] = []
        self._clocks_mhz: list[float] = []
        self._power_w: list[float] = []

    async def read(self) -> None:
        """Take messages until cancelled."""
        while True:
            try:
                message = await self._end.receive()
            except LinkError as error:
                print(f"warning: link: {error}", flush=True)
                continue
            match message:
                case Hello():
                    self.hello = message
                    self._greeted.set()
                case Ack():
                    self._acks.put_nowait(message)
                case EngineStats():
                    self.stats = message
                    self._keep_gauges(message)
                case IterationRecord():
                    self._modes[
                        f"{message.mode}/{message.reason}/{message.prefill_sms},{message.decode_sms}"
                    ] += 1
                    self._keep_ratio(message)
                    if message.host_late_s is not None and len(self._followed) < _KEPT:
                        self._followed.append((message.host_late_s, message.measured_step_s))
                    if len(self._records) < _KEPT:
                        self._records.append(message)

    def _keep_ratio(self, record: IterationRecord) -> None:
        predicted_s = record.predicted_fused_s if record.mode == "fused" else record.predicted_decode_s
        kept = self._ratios.setdefault(record.mode, [])
        if predicted_s and len(kept) < _KEPT:
            kept.append(record.measured_step_s / predicted_s)

    def _keep_gauges(self, stats: EngineStats) -> None:
        if stats.running and len(self._clocks_mhz) < _KEPT:
            self._clocks_mhz += [] if stats.gpu_clock_mhz is None else [stats.gpu_clock_mhz]
            self._power_w += [] if stats.gpu_power_w is None else [stats.gpu_power_w]

    async def set(
        self,
        *,
        policy: str,
        tbt_ms: float,
        predictors: Predictors | None = None,
        ttft: TtftTarget = DEFAULT_TTFT,
    ) -> None:
        """Bring a policy, targets and predictors into force.

        Raises: ArmError if the engine refuses or is silent.
        """
        try:
            await asyncio.wait_for(self._set(policy, tbt_ms, predictors, ttft), _ACK_S)
        except TimeoutError:
            raise ArmError(f"the engine did not acknowledge {policy} within {_ACK_S:g} s") from None
        except LinkError as error:
            raise ArmError(str(error)) from error

    async def _set(self, policy: str, tbt_ms: float, predictors: Predictors | None, ttft: TtftTarget) -> None:
        await self._greeted.wait()
        self._version += 1
        tenant = TenantSlo(
            tenant=TENANT,
            ttft_fixed_s=ttft.fixed_s,
            ttft_per_1k_new_tokens_s=ttft.per_1k_s,
            tbt_s=tbt_ms / 1e3,
            attainment_ratio=0.99,
            slo_version=self._version,
        )
        await self._end.send(
            EngineSettings(version=self._version, policy=policy, tenants=(tenant,), predictors=predictors)
        )
        while True:
            ack = await self._acks.get()
            if ack.version == self._version:
                break
        if ack.error is not None:
            raise ArmError(f"the engine refused {policy}: {ack.error}")

    def reset(self) -> None:
        """Count from here on."""
        self._before = self.stats
        self._modes.clear()
        self._ratios.clear()
        self._followed = []
        self._records = []
        self._clocks_mhz.clear()
        self._power_w.clear()

    def report(self) -> dict[str, Any]:
        """What was counted since `reset`."""
        report: dict[str, Any] = {"steps": dict(self._modes.most_common(40))}
        kept = {f"{mode}_over_predicted": ratios for mode, ratios in self._ratios.items()}
        kept |= {"gpu_clock_mhz": self._clocks_mhz, "gpu_power_w": self._power_w}
        report |= {name: _cuts(values) for name, values in kept.items() if len(values) > 1}
        if self._followed:
            report["host"] = host_delays(self._followed)
        if self.stats is not None:
            for name in _TOTALS:
                before = getattr(self._before, name) if self._before is not None else 0
                report[f"{name}_total"] = getattr(self.stats, name) - before
        return report

    def keep_records(self, folder: Path | None, name: str) -> None:
        """The steps since `reset`, one JSON object each; nowhere if there is no folder.

        A policy's name may have a `/` in it (`slack/chunked:1024`), a file's name may not.
        """
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            name = name.replace("/", "+")
            lines = b"\n".join(msgspec.json.encode(record) for record in self._records)
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines + b"\n"))


def host_delays(followed: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Sum up (seconds waited for the host, seconds taken) of steps that were launched behind another: how
    many the host delayed, and what it took of the time."""
    late_s = [late for late, _ in followed]
    taken_s = sum(taken for _, taken in followed)
    return {
        "steps": len(followed),
        "delayed_ratio": sum(late > HOST_DELAY_S for late in late_s) / len(followed),
        "time_ratio": sum(late_s) / taken_s if taken_s else 0.0,
        "p99_ms": 1e3 * quantile(late_s, 0.99),
    }


def _cuts(values: Sequence[float]) -> dict[int, float]:
    """The cuts between percentiles."""
    cuts = quantiles(values, n=100, method="inclusive")
    return {q: round(cuts[q - 1], 3) for q in (1, 10, 50, 90, 99)}


@contextlib.asynccontextmanager
async def listening(address: str) -> AsyncIterator[Link]:
    """A link that reads until the block ends."""
    end = DaemonEnd(address)
    link = Link(end)
    task = asyncio.create_task(link.read())
    try:
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        end.close()
