"""What the engine process says of itself over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pdmuxd.engine.emulator.server.driver import WallClockDriver
from pdmuxd.engine.emulator.server.telemetry import partitions


def server_info(driver: WallClockDriver, model: str, version: str) -> Mapping[str, Any]:
    """The body of /get_server_info: SGLang's names where it has them, then the emulator's own."""
    engine = driver.engine
    counters = engine.counters()
    return {
        "model_path": model,
        "served_model_name": model,
        "version": version,
        "max_total_num_tokens": counters.kv_capacity_tokens,
        "max_model_len": engine.profile.model.max_context_tokens,
        "internal_states": [{}],
        "engine": "emulator",
        "device": engine.profile.device.name,
        "total_sms": engine.profile.device.total_sms,
        "profile": engine.profile.name,
        "profile_provenance": engine.profile.provenance,
        "policy": counters.policy,
        "settings_version": counters.settings_version,
        "slo_versions": driver.slo_versions,
        "partitions": partitions(engine),
        "open_requests": driver.open_requests,
        "draining": driver.draining,
        "late_wakeups": driver.late_wakeups,
        "lag_s": driver.lag_s,
        "counters": asdict(counters),
    }


def model_info(model: str) -> Mapping[str, Any]:
    """The body of /get_model_info."""
    return {"model_path": model, "served_model_name": model, "tokenizer_path": None, "is_generation": True}


def model_list(driver: WallClockDriver, model: str, created: int) -> Mapping[str, Any]:
    """The body of /v1/models."""
    card = {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "pdmuxd",
        "root": model,
        "max_model_len": driver.engine.profile.model.max_context_tokens,
    }
    return {"object": "list", "data": [card]}
