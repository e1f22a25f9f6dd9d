"""Emulated engines and requests for tests, and an observer that remembers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pdmuxd.engine.core.types import Decision, EngineLimits
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.observer import EngineObserver
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest

PROFILE = load_profile("h200-llama-8b")


@dataclass
class Memory:
    """An observer that keeps what it is told."""

    tokens: dict[str, int] = field(default_factory=dict)
    ended: list[tuple[str, str, float]] = field(default_factory=list)
    steps: list[tuple[Decision, float, float]] = field(default_factory=list)

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        self.tokens[request.request_id] = self.tokens.get(request.request_id, 0) + 1

    def on_decode_tokens(self, requests: Iterable[EmulatedRequest], now_s: float) -> None:
        for request in requests:
            self.tokens[request.request_id] += 1

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        self.ended.append((request.request_id, request.phase.value, now_s))

    def on_step(self, decision: Decision, start_s: float, end_s: float) -> None:
        self.steps.append((decision, start_s, end_s))


def engine(
    policy: str = "muxwise",
    *,
    kv_capacity_tokens: int | None = None,
    block_tokens: int = 16,
    observer: EngineObserver | None = None,
    limits: EngineLimits | None = None,
    profile: Profile = PROFILE,
    step_records: bool = False,
) -> EmulatedEngine:
    if kv_capacity_tokens is not None:
        profile = replace(profile, kv_capacity_tokens=kv_capacity_tokens)
    return EmulatedEngine(
        profile=profile,
        policy=policy,
        observer=observer,
        block_tokens=block_tokens,
        limits=limits,
        step_records=step_records,
    )


def request(
    name: str,
    input_tokens: int,
    output_tokens: int,
    *,
    arrival_s: float = 0.0,
    tenant: str = "t",
    block_keys: tuple[int, ...] = (),
    answer_keys: tuple[int, ...] = (),
) -> EmulatedRequest:
    return EmulatedRequest(
        request_id=name,
        tenant=tenant,
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        block_keys=block_keys,
        answer_keys=answer_keys,
    )


def run_until_idle(engine: EmulatedEngine) -> None:
    while math.isfinite(at_s := engine.next_event_s()):
        engine.advance(at_s)
