"""Load steps: three times the load for two minutes, and how long it takes until requests are good again;
and a tenant with a strict TBT target beside one with a relaxed one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from evaluation.store import Store, fingerprint
from evaluation.workloads import GENERATED_SEED, Sources, Workload
from tbt_classes import MIXES, mixed
from tenant_floods import MOST_TOKENS, PROFILE, TARGET, run

from pdmuxd.daemon.compare.stages import OnStage
from pdmuxd.daemon.replay.generate import generate
from pdmuxd.daemon.replay.pool import run_tasks
from pdmuxd.engine.emulator.requests import EmulatedRequest

POLICIES = ("auto", "slack/chunked:1024", "chunked:1024", "muxwise:preempt")
STEPS = (("chat", 100.0), ("summaries", 5.0), ("tools", 0.8), ("tools", 1.8))
"""A kind of `pdmuxd generate`, and requests a second before and after the step; three times of it is past
`auto`'s capacity, but for the third."""
TIMES = 3.0
FROM_S, STEP_S, AFTER_S = 40.0, 120.0, 300.0
BIN_S = 20.0
BACK_RATIO = 0.95
CLASS_POLICIES = ("auto:noclasses", "auto")
CLASS_S = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One load under one policy."""

    kind: str
    rate_per_s: float
    policy: str
    good_in_step: float
    good_after: float
    back_s: float | None
    """From the end of the step until BACK_RATIO of the requests that arrive in every later interval of BIN_S
    are good; None if that is not so within AFTER_S."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run."""

    kind: str
    rate_per_s: float
    policy: str


def recover(_shared: None, task: Task, _report: Callable[[float], None]) -> Recovery:
    """One run of a step."""
    arrivals = _arrivals(task)
    _, judged = run(task.policy, arrivals, {"a": TARGET})
    arrival_s = np.array([request.arrival_s for request in arrivals])
    end_s = FROM_S + STEP_S
    in_step = (arrival_s >= FROM_S) & (arrival_s < end_s)
    after = arrival_s >= end_s
    bins = ((arrival_s[after] - end_s) // BIN_S).astype(int)
    bad = [
        index for index in range(int(AFTER_S // BIN_S)) if _share(judged[after][bins == index]) < BACK_RATIO
    ]
    back_s = 0.0 if not bad else (bad[-1] + 1) * BIN_S
    return Recovery(
        kind=task.kind,
        rate_per_s=task.rate_per_s,
        policy=task.policy,
        good_in_step=_share(judged[in_step]),
        good_after=_share(judged[after]),
        back_s=back_s if back_s < AFTER_S else None,
    )


def run_steps(sources: Sources, store: Store, follow: OnStage) -> list[Recovery]:
    """Every load under every policy; what is not in the store is run."""
    tasks = [Task(kind=kind, rate_per_s=rate, policy=policy) for kind, rate in STEPS for policy in POLICIES]
    missing = [task for task in tasks if store.get(*_step_key(sources, task)) is None]
    if missing:
        follow.stage("load steps", len(missing))

        def keep(index: int, found: Recovery) -> None:
            follow.done()
            store.put(*_step_key(sources, missing[index]), found)

        run_tasks(recover, None, missing, sources.jobs, on_report=lambda _i, _r: None, on_done=keep)
    return [Recovery(**store.get(*_step_key(sources, task))) for task in tasks]


def run_classes(sources: Sources, store: Store, follow: OnStage) -> list[tuple[str, ...]]:
    """Rows: strict, relaxed, relaxed alone, then strict and relaxed without classes, and with them."""
    follow.stage("strict beside relaxed", len(MIXES) * len(CLASS_POLICIES))
    rows = []
    for mix in MIXES:
        shares = {}
        for policy in CLASS_POLICIES:
            key = f"classes {mix} {policy}", _made_with(sources, policy, CLASS_S)
            shares[policy] = store.once(*key, lambda mix=mix, policy=policy: mixed(policy, mix, CLASS_S))
            follow.done()
        (kind, rate), (other, other_rate) = mix
        alone, *with_classes = shares["auto"]
        without = shares["auto:noclasses"][1:]
        rows.append((f"{kind} {rate:g}/s", f"{other} {other_rate:g}/s", alone, *without, *with_classes))
    return rows


def _arrivals(task: Task) -> list[EmulatedRequest]:
    """The load throughout, and twice as much again during the step."""
    found = [
        EmulatedRequest(
            request_id=f"{from_s}/{row.line}",
            tenant="a",
            arrival_s=from_s + row.arrival_s,
            input_tokens=min(row.input_tokens, MOST_TOKENS),
            output_tokens=row.output_tokens,
        )
        for rate, from_s, span_s in (
            (task.rate_per_s, 0.0, FROM_S + STEP_S + AFTER_S),
            ((TIMES - 1.0) * task.rate_per_s, FROM_S, STEP_S),
        )
        for row in generate(task.kind, rate_per_s=rate, duration_s=span_s, seed=GENERATED_SEED)
    ]
    return sorted(found, key=lambda request: request.arrival_s)


def _share(judged: Sequence[bool] | np.ndarray) -> float:
    return float(np.mean(judged)) if len(judged) else 1.0


def _step_key(sources: Sources, task: Task) -> tuple[str, str]:
    key = f"step {task.kind} {task.rate_per_s:g}/s {task.policy}"
    return key, _made_with(sources, task.policy, TIMES, FROM_S, STEP_S, AFTER_S, BIN_S)


def _made_with(sources: Sources, policy: str, *more: object) -> str:
    workload = Workload(
        name="step", title="", file=None, shuffle=False, seconds=1, quick_seconds=1, kind="chat", kind_rps=1.0
    )
    return fingerprint(sources.plan(PROFILE, workload), policy, *more)
