"""What telemetry sees, as the history counts it: columns of requests, SM time, decisions, and marks.

The same is told to what compares the time before a change with the time since.
"""

from __future__ import annotations

from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.history.recorder import Recorder
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import EngineState
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.directory_change import DirectoryChange
from pdmuxd.controlplane.telemetry.effects import Change, Effects
from pdmuxd.controlplane.telemetry.judged import JudgedRequest, ttft_missed
from pdmuxd.controlplane.telemetry.regimes import Regimes
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.tenants.prices import MODEL_MAX
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.core.types import Reason
from pdmuxd.engine.link.messages import EngineStats, Hello, IterationRecord

_MANY_TENANTS = 20
"""Changes of more tenants at once are one mark."""


class Chronicle:
    """Writes into a recorder, and tells `effects`."""

    def __init__(self, recorder: Recorder, effects: Effects, regimes: Regimes) -> None:
        self._recorder = recorder
        self._effects = effects
        self._regimes = regimes
        self._total_sms = 0
        self._uptime_s: float | None = None
        self._policy = ""

    def on_request(self, judged: JudgedRequest, lifecycle: RequestLifecycle | None, now_s: float) -> None:
        """A request of a known tenant ended; `lifecycle` is what the gateway knows of it, if it does."""
        self._effects.on_request(judged)
        record, row = judged.record, self._recorder.row(judged.record.tenant)
        if lifecycle is None or lifecycle.arrived_s is None:
            self._recorder.ended(record, is_good=judged.good, ttft_s=judged.ttft_s)
        else:
            self._recorder.ended(
                record,
                is_good=judged.good,
                ttft_s=judged.ttft_s,
                key_id=lifecycle.key_id,
                status=lifecycle.status,
                duration_s=(lifecycle.ended_s or now_s) - lifecycle.arrived_s,
            )
        row[Column.ENDED] += 1
        row[Column.GOOD] += judged.good
        row[Column.PROMPT_TOKENS] += record.new_tokens + record.reused_tokens
        row[Column.CACHED_TOKENS] += record.reused_tokens
        row[Column.OUTPUT_TOKENS] += record.output_tokens
        if judged.ttft_missed is not None:
            row[Column.TTFT_JUDGED] += 1
            row[Column.TTFT_MISSED] += judged.ttft_missed
        if judged.ttft_s is not None:
            row[Column.WORST_TTFT_MS] = max(row[Column.WORST_TTFT_MS], round(1000 * judged.ttft_s))
        if judged.gap_max_s is not None:
            row[Column.TBT_REQUESTS] += 1
            row[Column.GAPS] += judged.gaps
            row[Column.GAPS_MISSED] += judged.gaps_missed
            row[Column.WORST_GAP_MS] = max(row[Column.WORST_GAP_MS], round(1000 * judged.gap_max_s))
        if judged.e2e_missed is not None:
            row[Column.E2E_JUDGED] += 1
            row[Column.E2E_MISSED] += judged.e2e_missed
        if (missed := ttft_missed(record)) is not None:
            row[Column.ENGINE_TTFT_JUDGED] += 1
            row[Column.ENGINE_TTFT_MISSED] += missed
        row[Column.ENGINE_GAPS] += record.tbt_gaps
        row[Column.ENGINE_GAPS_MISSED] += record.tbt_gaps - record.tbt_gaps_met

    def on_stats(self, stats: EngineStats, now_s: float) -> None:
        """A heartbeat: its busy ratios hold since the last one."""
        before_s, self._uptime_s = self._uptime_s, stats.uptime_s
        if before_s is not None and stats.uptime_s > before_s:
            span_s = stats.uptime_s - before_s
            self._effects.on_busy(
                span_s, prefill_ratio=stats.sm_busy_prefill_ratio, decode_ratio=stats.sm_busy_decode_ratio
            )
            sm_s = span_s * self._total_sms
            self._recorder.sm_time(
                prefill_sm_s=sm_s * max(0.0, stats.sm_busy_prefill_ratio),
                decode_sm_s=sm_s * max(0.0, stats.sm_busy_decode_ratio),
                total_sm_s=sm_s,
            )
        if stats.policy != self._policy:
            if self._policy:
                text = f"the policy is {stats.policy}, it was {self._policy}"
                self._recorder.mark("policy", text)
                self._effects.changed([("policy", None, text, self._policy)])
                self._regimes.began(now_s)
            self._policy = stats.policy

    def on_iteration(self, record: IterationRecord) -> None:
        """The engine carried out a decision."""
        self._effects.on_iteration(record)
        self._recorder.decision(
            record.mode,
            record.reason,
            # Of a prefill that ends beside decode the steps have the time.
            time_s=0.0 if record.reason == Reason.PREFILL_FINISHED else record.measured_step_s,
            prefill_tokens=record.prefill_new_tokens,
        )

    def on_hello(self, hello: Hello, now_s: float) -> None:
        self._effects.interrupt()
        self._regimes.began(now_s)
        self._total_sms, self._uptime_s = hello.total_sms, None
        self._recorder.model = hello.model[:MODEL_MAX]
        self._recorder.mark("engine", f"an engine started: {hello.model} on {hello.device}")

    def on_state(self, state: EngineState, reason: str | None) -> None:
        if state in ("down", "draining"):
            self._recorder.mark("engine", f"the engine is {state}" + (f": {reason}" if reason else ""))

    def on_directory(self, now: DirectorySnapshot, change: DirectoryChange, now_s: float) -> None:
        """Tenants, targets or the profile in force are others."""
        edits: list[Change] = []
        self._regimes.changed(change.targets, now_s)
        before, changed = change.before, change.tenants
        if len(changed) > _MANY_TENANTS:
            text = f"{len(changed)} tenants were changed at once"
            self._recorder.mark("tenant", text)
            if change.targets:
                edits.append(("slo", None, text, None))
        else:
            for name, old, new in sorted(changed, key=lambda each: each[0]):
                if (edit := self._on_tenant(name, old, new)) is not None:
                    edits.append(("slo", name, edit, old.slo if old else None))
        old_id, new_id = (each.predictors.profile_id if each.predictors else 0 for each in (before, now))
        if old_id != new_id:
            text = f"profile {new_id} is in force" if new_id else "no profile is in force"
            self._recorder.mark("profile", text)
            edits.append(("profile", None, text, None))
            self._regimes.began(now_s)
        self._effects.changed(edits)

    def _on_tenant(self, name: str, old: TenantRecord | None, new: TenantRecord | None) -> str | None:
        """What its targets are now, in words; None if they are what they were."""
        if old is None or new is None:
            self._recorder.mark(
                "tenant", f"{name} was {'created' if old is None else 'deleted'}", tenant=name
            )
            return None
        said = None
        if old.slo != new.slo:
            said = _difference(old.slo, new.slo)
            self._recorder.mark("slo", f"{name}: {said}", tenant=name)
        if old.enabled != new.enabled:
            text = f"{name} was {'enabled' if new.enabled else 'disabled'}"
            self._recorder.mark("tenant", text, tenant=name)
        return said


def _difference(old: Slo, new: Slo) -> str:
    shown = (
        ("TTFT", to_ms(old.ttft_fixed_s), to_ms(new.ttft_fixed_s), " ms"),
        ("TTFT per 1K", to_ms(old.ttft_per_1k_new_tokens_s), to_ms(new.ttft_per_1k_new_tokens_s), " ms"),
        ("TBT", to_ms(old.tbt_s), to_ms(new.tbt_s), " ms"),
        ("attainment", 100 * old.attainment_ratio, 100 * new.attainment_ratio, "%"),
    )
    said = [f"{what} {was:g} to {now:g}{unit}" for what, was, now, unit in shown if was != now]
    if old.e2e_s != new.e2e_s:
        was, now = ("none" if one is None else f"{to_ms(one):g} ms" for one in (old.e2e_s, new.e2e_s))
        said.append(f"whole answers {was} to {now}")
    return ", ".join(said)
