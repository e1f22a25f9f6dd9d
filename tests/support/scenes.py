"""Events and answers for tests of the console: fixed figures at a fixed instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SESSION = "1769860800000"
PARTITIONS = [(132, 0), (116, 16), (100, 32), (84, 48), (68, 64), (0, 132)]

Json = dict[str, Any]


def instant(seconds: float = 0.0) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def engine(**changes: Any) -> Json:
    return {
        "at": instant(),
        "state": "serving",
        "reason": None,
        "since": instant(-3600),
        "pid": 4711,
        "restarts": 0,
        "kind": "emulator",
        "engine_version": "0.1.0",
        "model": "llama-8b",
        "device": "NVIDIA H200",
        "total_sms": 132,
        "partitions": [{"prefill_sms": p, "decode_sms": d} for p, d in PARTITIONS],
        "profile": "h200-llama-8b",
        "policy": "auto",
        "wanted_version": 17,
        "acked_version": 17,
        "held": False,
    } | changes


def hello(**changes: Any) -> Json:
    return {
        "version": "0.1.0",
        "api_version": 1,
        "session": SESSION,
        "started_at": instant(-7200),
        "at": instant(),
        "role": "admin",
        "head": f"{SESSION}-0",
        "engine": engine(),
        "alarms": [],
        "settings_version": 17,
        "heartbeat_ms": 5000,
        "stats_ms": 100,
    } | changes


def stats(at_s: float = 0.0, **changes: Any) -> Json:
    return {
        "at": instant(at_s),
        "state": "serving",
        "engine_age_ms": 43.0,
        "policy": "auto",
        "uptime_ms": 3_600_000.0,
        "partition_id": 3,
        "prefill_sms": 84,
        "decode_sms": 48,
        "total_sms": 132,
        "mode": "split",
        "reason": "best_fit",
        "sm_busy_prefill_ratio": 0.55,
        "sm_busy_decode_ratio": 0.32,
        "running": 14,
        "waiting": 3,
        "prefilling": 1,
        "in_flight": 18,
        "kv_used_tokens": 81_234,
        "kv_capacity_tokens": 400_000,
        "cached_tokens": 30_111,
        "cache_hit_ratio": 0.41,
        "prompt_tokens_per_s": 8123.0,
        "output_tokens_per_s": 911.0,
        "steps_per_s": 96.0,
        "window_ms": 60000,
        "requests_per_s": 3.2,
        "goodput_per_s": 3.1,
        "ttft_ms": {"count": 192, "p50": 310.0, "p99": 901.0},
        "tbt_gap_ms": {"count": 51234, "p50": 21.0, "p99": 38.5},
        "tbt_worst_ms": {"count": 190, "p50": 33.0, "p99": 41.0},
        "strictest_tbt": {"tenant": "chat", "tbt_ms": 40.0},
        "waiting_total": 5,
        "late_now": 3,
        "oldest_wait_ms": 8200.0,
        "totals": {
            "steps": 9100,
            "switches": 33,
            "prompt_tokens": 10_000_000 + round(8123 * at_s),
            "output_tokens": 1_000_000 + round(911 * at_s),
        },
    } | changes


def decision(seq: int = 1, at_s: float = 0.0, **changes: Any) -> Json:
    return {
        "at": instant(at_s),
        "seq": seq,
        "count": 4,
        "step": seq * 4,
        "mode": "split",
        "reason": "best_fit",
        "partition_id": 3,
        "prefill_sms": 84,
        "decode_sms": 48,
        "decode_bs": 14,
        "decode_reused_tokens": 51_000,
        "prefill_new_tokens": 4096,
        "prefill_layers": 9,
        "decode_steps": 1,
        "predicted_ms": 31.0,
        "measured_ms": 30.2,
        "measured_max_ms": 33.0,
        "guard_ratio": 1.2,
        "slack_ms": 2.8,
        "slack_min_ms": 1.1,
        "folded_other": 0,
    } | changes


def tenant_load(tenant: str, **changes: Any) -> Json:
    return {
        "tenant": tenant,
        "in_flight": 5,
        "waiting": 1,
        "late_now": 0,
        "oldest_wait_ms": 120.0,
        "verdict": "met",
        "target_ratio": 0.99,
        "requests_per_s": 1.2,
        "goodput_per_s": 1.2,
        "output_tokens_per_s": 300.0,
        "refused_per_s": 0.0,
        "ttft_ms": {"count": 72, "p50": 310.0, "p99": 901.0},
        "tbt_gap_ms": {"count": 18_100, "p50": 21.0, "p99": 37.0},
        "tbt_worst_ms": {"count": 70, "p50": 33.0, "p99": 41.0},
        "ttft_attainment_ratio": 0.993,
        "tbt_attainment_ratio": 1.0,
        "ttft_burn": 0.7,
        "tbt_burn": 0.0,
        "budget_left_ratio": 0.86,
    } | changes


def tenants() -> Json:
    return {
        "at": instant(),
        "window_ms": 60000,
        "omitted": 0,
        "tenants": [
            tenant_load(
                "chat",
                waiting=4,
                late_now=3,
                oldest_wait_ms=8200.0,
                verdict="missed",
                ttft_burn=7.2,
                ttft_attainment_ratio=0.931,
            ),
            tenant_load(
                "batch",
                in_flight=9,
                ttft_burn=0.9,
                ttft_attainment_ratio=0.986,
                budget_left_ratio=-0.4,
                ttft_ms={"count": 40, "p50": 1200.0, "p99": 12_900.0},
            ),
            tenant_load(
                "search",
                in_flight=0,
                waiting=0,
                oldest_wait_ms=0.0,
                refused_per_s=0.5,
                budget_left_ratio=0.2,
                tbt_burn=0.9,
            ),
        ],
    }


def request_life(number: int = 1, **changes: Any) -> Json:
    return {
        "request_id": f"{number:032x}",
        "tenant": "chat",
        "state": "ended",
        "outcome": "finished",
        "path": "/v1/chat/completions",
        "status": 200,
        "arrived_at": instant(-6.02),
        "ended_at": instant(),
        "new_tokens": 812,
        "reused_tokens": 100,
        "output_tokens": 256,
        "queue_ms": 12.0,
        "prefill_ms": 210.0,
        "ttft_ms": 222.0,
        "ttft_target_ms": 1149.6,
        "tbt_target_ms": 40.0,
        "tbt_max_ms": 51.0,
        "tbt_p99_ms": 39.0,
        "tbt_gaps": 255,
        "tbt_gaps_met": 254,
        "retractions": 0,
        "slo_version": 3,
        "missed": [
            {
                "target": "tbt",
                "by_ms": 11.0,
                "cause": "slower_than_predicted",
                "text": "1 of 255 gaps was too long, the longest by 11 ms",
            }
        ],
        "timeline": [
            {"at_ms": 0.0, "what": "arrived"},
            {"at_ms": 12.0, "what": "prefill_started"},
            {"at_ms": 222.0, "what": "first_token"},
            {"at_ms": 6020.0, "what": "ended"},
        ],
    } | changes


def alarm(**changes: Any) -> Json:
    return {
        "at": instant(),
        "id": "ttft_burn:chat",
        "kind": "ttft_burn",
        "tenant": "chat",
        "state": "raised",
        "severity": "warning",
        "since": instant(-120),
        "text": "chat: TTFT misses use up the hour's error budget 7.2 times too fast (5 min)",
    } | changes
