"""Learns which fixed plan to fall back on while predictions prove wrong, from replays of recent traffic.

A plan in fused steps of a fixed size needs no prediction. Which size is best depends on the traffic and its
targets: each one is replayed on the emulated device, as fast as predicted and slower by what opens the
breaker. A device slower by r is the same as one whose requests come r times as fast, with targets of 1/r.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.node.learned_fallback import Fallback, FallbackCandidate, FallbackState
from pdmuxd.controlplane.node.traffic_replays import Job, Outcome, WantedVariant
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.daemon.bus import FallbackLearned
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.process.state_file import read_state, write_state
from pdmuxd.daemon.traffic.jobs import TrafficReplays
from pdmuxd.engine.core.errors import ConflictError, EngineError
from pdmuxd.engine.core.misprediction_breaker import WRONG_RATIO
from pdmuxd.engine.core.policies.fusedsteps import FIXED_STEP_TOKENS
from pdmuxd.engine.core.slo import TBT_RANGE_S, TTFT_FIXED_RANGE_S, Slo
from pdmuxd.engine.link.messages import Hello

CANDIDATES = (128, 256, FIXED_STEP_TOKENS, 768, 1024, 2048)
"""Sizes that engines have captured graphs of, from the least that chat needs to the most that targets of
100 ms leave."""
PERIOD_S = 3600.0
MINUTES = 60.0
MOST_REQUESTS = 500
"""Of one look, the newest: each is replayed twice by every candidate and by the policy in force."""
LEAST_REQUESTS = 200
"""Fewer say nothing of a share of 99%."""
LEAST_GAIN_RATIO = 0.01
"""Another plan must be better by this, so that chance does not change it every hour."""
_FAST, _SLOW = "as predicted", "slower"

log = structlog.get_logger("pdmuxd.fallback")


class FallbackKeeper:
    """Implements FallbackLearning. What was learned is kept by model and device in a file of `state_dir`."""

    def __init__(
        self,
        path: Path,
        replays: TrafficReplays,
        *,
        status: Callable[[], EngineStatus],
        directory: Callable[[], DirectorySnapshot],
        clock: Callable[[], float],
        publish: Callable[[FallbackLearned], None],
    ) -> None:
        self._path = path
        self._replays = replays
        self._status = status
        self._directory = directory
        self._clock = clock
        self._known = read_state(
            path, dict[str, Fallback], log, "what was learned of fallbacks cannot be read"
        )
        self._looking: asyncio.Task[None] | None = None
        self._reason: str | None = None
        self._publish = publish

    def tokens_for(self, hello: Hello) -> int | None:
        """Tokens of a fused step; None: nothing was learned for such an engine."""
        found = self._known.get(_key(hello))
        return None if found is None else found.step_tokens

    def state(self) -> FallbackState:
        """State of the engine that serves."""
        hello = self._status().hello
        learned = None if hello is None else self._known.get(_key(hello))
        return FallbackState(
            step_tokens=FIXED_STEP_TOKENS if learned is None else learned.step_tokens,
            learned=learned,
            is_learning=self._is_looking,
            reason=self._reason,
        )

    async def begin(self) -> FallbackState:
        """Look for a better one, in the background. Raises: EngineError, ConflictError."""
        if self._is_looking:
            raise ConflictError("a fallback is being looked for already; wait until that has ended")
        hello = self._status().hello
        if hello is None:
            raise EngineError("no engine has introduced itself yet, so there is nothing to learn for")
        job = await self._replays.begin(
            self._variants(), minutes=MINUTES, least=LEAST_REQUESTS, most=MOST_REQUESTS
        )
        self._reason = None
        self._looking = asyncio.create_task(self._look(job, hello), name="fallback")
        return self.state()

    async def look(self) -> None:
        """Begin as `begin` does if there is anything to learn from, and wait for the end."""
        with contextlib.suppress(EngineError, ConflictError):
            await self.begin()
        if self._looking is not None:
            await asyncio.shield(self._looking)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    def _variants(self) -> tuple[WantedVariant, ...]:
        """The policy in force on the slower device, and every candidate on both."""
        slower = {name: _slower(tenant.slo) for name, tenant in self._directory().tenants.items()}
        found = [_variant(_SLOW, None, slower)]
        for tokens in CANDIDATES:
            found += [
                _variant(f"{tokens} {_FAST}", tokens, None),
                _variant(f"{tokens} {_SLOW}", tokens, slower),
            ]
        return tuple(found)

    async def _look(self, job: Job, hello: Hello) -> None:
        job = await self._replays.ended(job.job_id)
        if job.state != "done":
            self._reason = f"the replay is {job.state}: {job.reason or 'somebody ended it'}"
            log.warning("no fallback was learned", reason=self._reason)
            return
        key, present = _key(hello), self.tokens_for(hello) or FIXED_STEP_TOKENS
        found = judged(job.outcomes, present=present, learned_s=self._clock(), requests=job.requests)
        self._known = {**self._known, key: found}
        try:
            await asyncio.to_thread(write_state, self._path, self._known)
        except OSError as error:
            log.warning("what was learned of fallbacks is not kept", reason=str(error))
        log.info(
            "fallback learned",
            step_tokens=found.step_tokens,
            requests=found.requests,
            regret_ratio=found.regret_ratio,
            slower_regret_ratio=found.slower_regret_ratio,
        )
        if found.step_tokens != present:
            self._publish(FallbackLearned(self.tokens_for))


def judged(outcomes: tuple[Outcome, ...], *, present: int, learned_s: float, requests: int) -> Fallback:
    """The best of the candidates where plans are needed: on the slower device; where they are alike there,
    on the one as predicted; where alike on both, the present one.

    `outcomes`: of the policy in force, and of the variants in order.
    """
    policy, slower_policy, *rest = outcomes
    candidates = tuple(
        FallbackCandidate(
            step_tokens=tokens,
            goodput_per_s=fast.goodput_per_s,
            # Per second of the slower device, whose requests were replayed that much faster.
            slower_goodput_per_s=round(slow.goodput_per_s / WRONG_RATIO, 4),
        )
        for tokens, fast, slow in zip(CANDIDATES, rest[::2], rest[1::2], strict=True)
    )
    chosen = next((one for one in candidates if one.step_tokens == present), candidates[0])
    for one in candidates:
        if _is_better(one, chosen):
            chosen = one
    return Fallback(
        step_tokens=chosen.step_tokens,
        policy=policy.policy,
        learned_s=learned_s,
        requests=requests,
        goodput_per_s=policy.goodput_per_s,
        slower_goodput_per_s=round(slower_policy.goodput_per_s / WRONG_RATIO, 4),
        slower_ratio=WRONG_RATIO,
        candidates=candidates,
    )


def _is_better(one: FallbackCandidate, other: FallbackCandidate) -> bool:
    slower = one.slower_goodput_per_s - other.slower_goodput_per_s
    least = LEAST_GAIN_RATIO * other.slower_goodput_per_s
    as_predicted = one.goodput_per_s - other.goodput_per_s
    return slower > least or (abs(slower) <= least and as_predicted > LEAST_GAIN_RATIO * other.goodput_per_s)


def duties(keeper: FallbackKeeper, *, is_wanted: bool) -> tuple[Duty, ...]:
    """Look every PERIOD_S, where that is wanted."""
    return (Duty(name="learning a fallback", work=keeper.look, period_s=PERIOD_S),) if is_wanted else ()


def _variant(label: str, tokens: int | None, slower: Mapping[str, Slo] | None) -> WantedVariant:
    return WantedVariant(
        label=label,
        policy=None if tokens is None else f"chunked:{tokens}",
        targets=slower or {},
        tenant_scale={},
        rate_scale=1.0 if slower is None else WRONG_RATIO,
    )


def _slower(slo: Slo) -> Slo:
    """What the targets are in the time of a device that is slower by WRONG_RATIO."""
    return Slo(
        ttft_fixed_s=max(TTFT_FIXED_RANGE_S[0], slo.ttft_fixed_s / WRONG_RATIO),
        ttft_per_1k_new_tokens_s=slo.ttft_per_1k_new_tokens_s / WRONG_RATIO,
        tbt_s=max(TBT_RANGE_S[0], slo.tbt_s / WRONG_RATIO),
        attainment_ratio=slo.attainment_ratio,
    )


def _key(hello: Hello) -> str:
    return f"{hello.model_hash or hello.model} on {hello.tensor_parallel.gpus} {hello.device}"
