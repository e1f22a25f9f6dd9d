"""What the daemon's read routes answer beside the events of `scenes`."""

from __future__ import annotations

from typing import Any

from scenes import PARTITIONS, Json, decision, instant, request_life


def slo(**changes: Any) -> Json:
    return {
        "ttft_fixed_ms": 500.0,
        "ttft_per_1k_new_tokens_ms": 800.0,
        "tbt_ms": 40.0,
        "attainment_ratio": 0.99,
        "version": 3,
        "settings_version": 17,
        "in_force": True,
        "created_at": instant(-600),
    } | changes


def tenant(name: str, **changes: Any) -> Json:
    return {
        "name": name,
        "enabled": True,
        "max_in_flight": 64,
        "priority_class": "standard",
        "weight": 1.0,
        "max_wait_ms": 20_000,
        "late_action": "serve",
        "limits": {"tokens_per_day": {"value": 5_000_000, "action": "refuse"}},
        "created_at": instant(-9000),
        "slo": slo(),
    } | changes


def tenant_list() -> list[Json]:
    return [
        tenant("batch", slo=slo(tbt_ms=200.0, version=1)),
        tenant("chat"),
        tenant("quiet", enabled=False),
        tenant("search", slo=slo(tbt_ms=60.0)),
    ]


def window(window_ms: int, missed: int = 0, *, judged: int = 100) -> Json:
    return {
        "window_ms": window_ms,
        "requests": 100,
        "judged": judged,
        "missed": missed,
        "attainment_ratio": (judged - missed) / judged,
        "burn": 100.0 * missed / judged,
    }


def attainment() -> Json:
    windows = (60_000, 300_000, 3_600_000)
    return {
        "windows_ms": list(windows),
        "tenants": [
            {
                "tenant": name,
                "target_ratio": 0.99,
                "budget_left_ratio": 0.5,
                "ttft": [window(ms, missed) for ms in windows],
                "tbt": [window(ms, 40 * missed, judged=25_500) for ms in windows],
                "requests": 812,
                "refused": refused,
                "in_flight": 5,
                "verdict": "met",
            }
            for name, missed, refused in (("chat", 0, 0), ("batch", 7, 0), ("search", 1, 12))
        ],
    }


def partitions() -> Json:
    shares = (0.2, 0.05, 0.1, 0.4, 0.05, 0.1)
    return {
        "since": instant(-3600),
        "switches": 33,
        "groups": [
            {
                "partition_id": partition_id,
                "prefill_sms": prefill,
                "decode_sms": decode,
                "time_ms": 3_600_000 * share,
                "time_ratio": share,
                "decisions": 1000 * partition_id,
                "prefill_tokens": 80_000 * (decode != 132),
                "decode_tokens": 9000 * (decode != 0),
                "in_force": partition_id == 3,
            }
            for partition_id, ((prefill, decode), share) in enumerate(zip(PARTITIONS, shares, strict=True))
        ],
        "fused": {
            "time_ms": 1.0,
            "time_ratio": 0.06,
            "decisions": 40,
            "prefill_tokens": 5,
            "decode_tokens": 9,
        },
        "idle": {"time_ms": 1.0, "time_ratio": 0.04},
    }


def what_if(tbt_ms: float) -> Json:
    """A worst case of 960 ms over the decode SMs."""
    groups = [
        {
            "partition_id": partition_id,
            "prefill_sms": prefill,
            "decode_sms": decode,
            "decode_ms": 800 / decode,
            "guard_ratio": 1.2,
            "worst_ms": 960 / decode,
            "slack_ms": tbt_ms - 960 / decode,
            "meets": 960 / decode <= tbt_ms,
            "prefill_ms": 13_000 / prefill,
            "prefill_tokens_per_s": 300.0 * prefill,
        }
        for partition_id, (prefill, decode) in enumerate(PARTITIONS)
        if prefill and decode
    ]
    meeting = [one for one in groups if one["meets"]]
    chosen = meeting[0] if meeting else groups[-1]
    return {
        "tbt_ms": tbt_ms,
        "assumed": {
            "decode_bs": 14,
            "decode_context_tokens": 3600,
            "prefill_new_tokens": 4096,
            "prefill_reused_tokens": 0,
            "from": "recent",
        },
        "feasible": bool(meeting),
        "policy": "auto",
        "mode": "split",
        "chosen_partition_id": chosen["partition_id"],
        "reason": "best_fit" if meeting else "tbt_infeasible",
        "text": f"{chosen['decode_sms']} SMs decode and {chosen['prefill_sms']} prefill: worst case "
        f"{chosen['worst_ms']:.1f} ms of {tbt_ms:g} ms",
        "predictors": "h200-llama-8b",
        "prefill_tokens_per_s": chosen["prefill_tokens_per_s"],
        "prefill_ms": chosen["prefill_ms"],
        "lowest_feasible_tbt_ms": 15.0,
        "groups": groups,
    }


def outlook(body: Json) -> Json:
    """Of the targets in `body`, at a usual load and a busy one."""

    def under(tbt_ms: float) -> Json:
        found = what_if(tbt_ms)
        load = found["assumed"] | {"from": "recent"}
        one = {
            "load": load,
            "tbt_ms": tbt_ms,
            "text": found["text"],
            "prefill_tokens_per_s": found["prefill_tokens_per_s"],
            "meets": found["feasible"],
        }
        return {
            "loads": [one, one | {"load": load | {"decode_bs": 31}}],
            "binding": [{"tenant": "chat", "time_ratio": 0.93}],
            "prefill_busy_ratio": 0.41,
        }

    def figures(ttft: float, tbt: float, p99_ms: float) -> Json:
        return {
            "ttft_p50_ms": 140.0,
            "ttft_p99_ms": p99_ms,
            "ttft_attainment_ratio": ttft,
            "tbt_attainment_ratio": tbt,
        }

    tbt_ms = body["tbt_ms"]
    is_feasible = what_if(tbt_ms)["feasible"]
    obstacle = {"field": "tbt_ms", "text": "no plan meets it", "lowest_feasible_ms": 15.0}
    return {
        "verdict": "feasible" if is_feasible else "infeasible",
        "text": "chat is predicted to keep its targets" if is_feasible else "chat cannot keep its targets",
        "window_ms": 300_000.0,
        "requests": 912,
        "checked": 120,
        "policy": "auto",
        "predictors": "h200-llama-8b",
        "before": under(40.0),
        "after": under(tbt_ms),
        "lowest_feasible_tbt_ms": 15.0,
        "obstacles": [] if is_feasible else [obstacle],
        "tenants": [
            {
                "tenant": name,
                "requests": 400,
                "attainment_ratio": 0.99,
                "measured": {"ttft_attainment_ratio": 0.93, "tbt_attainment_ratio": 1.0},
                "before": figures(0.931, 0.999, 901.0),
                "after": figures(after, 0.999, 1200.0),
                "kept": after >= 0.99,
                "expected": "kept" if after >= 0.99 else "missed",
                "ttft_band": {"low_ratio": after - 0.006, "high_ratio": min(1.0, after + 0.004)},
                "tbt_band": {"low_ratio": 0.991, "high_ratio": 1.0},
            }
            for name, after in (("chat", 0.997), ("batch", 0.951))
        ],
    }


def guard_cell(decode_sms: int, prefill_new: int, decode_bs: int, ratio: float, **changes: Any) -> Json:
    return {
        "decode_sms": decode_sms,
        "prefill_new": prefill_new,
        "prefill_reused": 0,
        "decode_bs": decode_bs,
        "decode_reused": 1,
        "ratio": ratio,
        "observed_max_ratio": ratio + 0.02,
        "observed_p50_ratio": 1.1,
        "samples": 120,
        "raised": False,
        "changed_at": instant(-60 * prefill_new - decode_bs),
    } | changes


def guard() -> Json:
    cells = [guard_cell(16, new, bs, 1.0 + 0.1 * new + 0.05 * bs) for new in range(4) for bs in range(1, 6)]
    cells.append(guard_cell(48, 2, 4, 1.31, raised=True, changed_at=instant(-1)))
    return {"cells": cells}


def drift() -> Json:
    def pair(work: str, sms: int, p50: float) -> Json:
        return {
            "work": work,
            "sms": sms,
            "samples": 812,
            "p50_ratio": p50,
            "p90_ratio": p50 + 0.06,
            "error_p50_ratio": abs(p50 - 1),
            "error_p90_ratio": abs(p50 - 1) + 0.06,
        }

    return {
        "pairs": [pair("decode", 48, 1.02), pair("prefill", 84, 0.97), pair("fused", 132, 1.31)],
        "alarm": True,
    }


def engine_log() -> Json:
    lines = [f"12:00:{second:02} INFO step {second * 100}" for second in range(40)]
    return {
        "path": "/var/lib/pdmuxd/engine.log",
        "lines": [*lines, "12:00:41 WARNING \x1b[31mKV pool is full"],
    }


def alarms() -> Json:
    raised = {"kind": "ttft_burn", "tenant": "chat", "severity": "warning"}
    raised |= {"raised_at": instant(-120), "text": "chat: TTFT misses"}
    ended = raised | {"kind": "tbt_burn", "text": "chat: TBT misses"}
    return {
        "alarms": [
            raised | {"alarm_id": 2, "began_at": instant(-120), "ended_at": None, "ended_by": None},
            ended
            | {"alarm_id": 1, "began_at": instant(-1800), "ended_at": instant(-900), "ended_by": "cleared"},
        ],
        "next_before": None,
    }


MISSED_OF_100 = (
    0,
    0,
    0,
    1,
    0,
    0,
    2,
    5,
    9,
    14,
    8,
    3,
    1,
    0,
    0,
    0,
    0,
    1,
    0,
    0,
    0,
    0,
    0,
    4,
    12,
    22,
    31,
    40,
    38,
    35,
)


def history(step_s: int = 60) -> Json:
    """Half an hour by the minute, or what is as many steps: well, then worse, better, and worse again."""
    count = len(MISSED_OF_100)
    of_minutes = {
        "ttft_judged": [100] * count,
        "ttft_missed": list(MISSED_OF_100),
        "gaps": [20_000] * count,
        "gaps_missed": [10] * count,
        "prefill_sm_ms": [2_000_000] * count,
        "decode_sm_ms": [1_000_000] * count,
        "total_sm_ms": [7_920_000] * count,
        "waiting": [3 + late for late in MISSED_OF_100],
        "late": list(MISSED_OF_100),
        "in_flight": [20 + late for late in MISSED_OF_100],
    }
    return {
        "tenant": None,
        "step_s": step_s,
        "kept_from": instant(-60 * step_s),
        "at": [instant(-step_s * (count - number)) for number in range(count)],
        "columns": of_minutes,
        "marks": [
            {"at": instant(-1500), "kind": "engine", "tenant": None, "text": "the engine started"},
            {"at": instant(-700), "kind": "slo", "tenant": "chat", "text": "chat: TBT 50 to 40 ms"},
        ],
    }


def effect(**changes: Any) -> Json:
    """An edit of `chat` four minutes ago: it keeps its TBT target since, and `batch` pays for it."""

    def standing(name: str, ttft: float, ttft_p99_ms: float, tbt: float, tbt_p99_ms: float) -> Json:
        return {
            "tenant": name,
            "requests": 240,
            "ttft_attainment_ratio": ttft,
            "ttft_p99_ms": ttft_p99_ms,
            "gaps": 61_000,
            "tbt_attainment_ratio": tbt,
            "tbt_p99_ms": tbt_p99_ms,
        }

    def sms(prefill: float, share: float) -> Json:
        busy = {"prefill_busy_ratio": 0.55, "decode_busy_ratio": 0.32}
        shares = {"split_ratio": share, "fused_ratio": 0.2}
        return {"prefill_sms": prefill, "decode_sms": 132 - prefill} | shares | busy

    before = [standing("batch", 0.994, 901.0, 0.999, 61.0), standing("chat", 0.995, 310.0, 0.941, 44.0)]
    after = [standing("batch", 0.951, 1240.0, 0.999, 66.0), standing("chat", 0.993, 330.0, 0.998, 29.0)]
    quiet = standing("search", 1.0, 200.0, 1.0, 30.0)
    return {
        "at": instant(-240),
        "kind": "slo",
        "tenant": "chat",
        "text": "TBT 40 to 30 ms",
        "state": "measuring",
        "mixed": False,
        "before": {"length_ms": 60_000.0, "sms": sms(100.0, 0.62), "tenants": [*before, quiet]},
        "after": {"length_ms": 240_000.0, "sms": sms(84.0, 0.7), "tenants": [*after, quiet]},
        "replay": {
            "requests": 480,
            "why_not": None,
            "tenants": [
                {
                    "tenant": "chat",
                    "requests": 240,
                    "ttft_before_ratio": 0.995,
                    "ttft_after_ratio": 0.994,
                    "tbt_before_ratio": 0.942,
                    "tbt_after_ratio": 0.998,
                }
            ],
        },
    } | changes


def serve_all(daemon: Any) -> None:
    """Every route that screens ask for."""
    daemon.answer("GET", "/tenants", tenant_list())
    daemon.answer("GET", "/attainment", attainment())
    daemon.answer("GET", "/tenants/chat/slo", slo())
    daemon.answer("GET", "/tenants/chat/slo/history", [slo(), slo(version=2, tbt_ms=50.0, in_force=False)])
    daemon.answer("GET", "/effects", {"effects": []})
    daemon.answer("GET", "/requests", {"requests": [request_life(7, ended_at=instant(-30))]})
    daemon.answer("GET", f"/requests/{7:032x}", request_life(7))
    daemon.answer("GET", "/alarms/history", alarms())
    daemon.answer("GET", "/history", history())
    daemon.answer("GET", "/partitions", partitions())
    daemon.answer("POST", "/tenants/chat/slo/preview", outlook)
    daemon.answer("POST", "/what-if", lambda body: what_if(body["tbt_ms"]))
    daemon.answer("GET", "/guard", guard())
    daemon.answer("GET", "/drift", drift())
    daemon.answer("GET", "/engine/log", engine_log())
    daemon.answer("GET", "/decisions", {"decisions": [decision(9, -5, reason="decode_alone", count=1)]})
