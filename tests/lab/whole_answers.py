"""What targets of whole answers, and of agents' sessions, are worth: `python tests/lab whole-answers`.

Emulated engine, virtual time, the device as it is served. The same requests twice: the engine is told of the
targets or it is not, and both runs are judged by them. First a tenant with a target for its whole answers
beside others that have none; then agents whose sessions have to end within a time: each call comes a while
after the answer before it, and is told what is left of the session's time, as the gateway does.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from served import SERVED, arrivals, device
from tenant_floods import TARGET

from pdmuxd.daemon.gateway.sessions import SESSION_HEADER, Sessions
from pdmuxd.daemon.replay.generate import BLOCK_TOKENS, Lengths
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.loop.requests import Target

TENANT, OTHERS = "whole", "others"
CALLS, PAUSE_S = 8, 1.0
"""Of a session: its calls, and the mean of what an agent does between an answer and the next call."""
NEW, ANSWER = (
    Lengths(median=1_500, sigma=0.9, most=20_000),
    Lengths(median=120, sigma=0.6, most=1_000),
)


@dataclass(slots=True)
class Session:
    """An agent's calls, one after the other; `lengths` are of new prompt tokens and of answers."""

    begin_s: float
    lengths: Sequence[tuple[int, int]]
    pauses_s: Sequence[float]
    made: list[EmulatedRequest] = field(default_factory=list)

    def next_call(self, number: int, now_s: float, targets: RequestTargets | None) -> EmulatedRequest:
        """It repeats all that came before."""
        new, output = self.lengths[len(self.made)]
        last = self.made[-1] if self.made else None
        size = new if last is None else last.input_tokens + last.output_tokens + new
        blocks = tuple(range(number << 20, (number << 20) + (size + output) // BLOCK_TOKENS))
        call = EmulatedRequest(
            request_id=f"{number}/{len(self.made)}",
            tenant=TENANT,
            arrival_s=now_s,
            input_tokens=size,
            output_tokens=output,
            block_keys=blocks[: size // BLOCK_TOKENS],
            answer_keys=blocks[size // BLOCK_TOKENS :],
            own_targets=targets,
        )
        self.made.append(call)
        return call

    def is_in_time(self, within_s: float) -> bool:
        """Whether its last answer was whole in time."""
        last = self.made[-1]
        done = len(self.made) == len(self.lengths) and last.phase is Phase.FINISHED
        return done and (last.end_s or math.inf) <= self.begin_s + within_s


def sessions(rate_per_s: float, duration_s: float, seed: int) -> list[Session]:
    """`rate_per_s` of them begin a second."""
    rng, at_s, found = random.Random(seed), 0.0, list[Session]()
    while (at_s := at_s + rng.expovariate(rate_per_s)) < duration_s:
        lengths = [(NEW.draw(rng), ANSWER.draw(rng)) for _ in range(CALLS)]
        found.append(Session(at_s, lengths, [rng.expovariate(1.0 / PAUSE_S) for _ in range(CALLS)]))
    return found


class Drive:
    """Runs requests that are known and calls that follow on each other."""

    def __init__(self, policy: str, targets: dict[str, Target], within_s: float | None) -> None:
        self._within = None if within_s is None else RequestTargets(e2e_s=within_s)
        self._at_s = 0.0
        self._gateway = Sessions(lambda: self._at_s)
        self._due: list[tuple[float, int, EmulatedRequest | int]] = []
        self._sessions: Sequence[Session] = ()
        self.good: dict[str, bool] = {}
        """By id, whether a request finished with its first token and p99 of its gaps in time."""
        self._engine = EmulatedEngine(
            profile=device(SERVED), policy=policy, observer=self, block_tokens=BLOCK_TOKENS
        )
        self._engine.apply_settings(version=1, policy=policy, slos=targets)

    def run(self, requests: Sequence[EmulatedRequest], of: Sequence[Session] = ()) -> None:
        """Until nothing is left to happen."""
        self._sessions = of
        for request in requests:
            heapq.heappush(self._due, (request.arrival_s, len(self._due), request))
        for number, session in enumerate(of):
            heapq.heappush(self._due, (session.begin_s, len(self._due), number))
        while self._due or self._engine.next_event_s() < math.inf:
            if self._due and self._due[0][0] <= self._engine.next_event_s():
                at_s, _, what = heapq.heappop(self._due)
                if isinstance(what, int):
                    what = of[what].next_call(what, at_s, self._told(what, at_s))
                self._engine.submit(what, max(at_s, self._engine.now_s))
            else:
                self._engine.advance(self._engine.next_event_s())

    def _told(self, number: int, at_s: float) -> RequestTargets | None:
        """What the gateway makes of the time that the session has."""
        self._at_s = at_s
        scope = {"headers": [(SESSION_HEADER.encode(), str(number).encode())]}
        return self._gateway.applied(scope, TENANT, TARGET.slo, self._within)

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        """Nothing: the request carries it."""

    def on_decode_tokens(self, requests: object, now_s: float) -> None:
        """Nothing: they are asked for at the end."""

    def on_step(self, decision: object, start_s: float, end_s: float) -> None:
        """Nothing."""

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        """Judge it; the next call of its session comes after a while."""
        gaps_s = np.diff(self._engine.token_times(request))
        gap_s = float(np.quantile(gaps_s, 0.99)) if len(gaps_s) else 0.0
        first_s = math.inf if request.first_token_s is None else request.first_token_s - request.arrival_s
        in_time = first_s <= request.ttft_target_s and gap_s <= request.tbt_target_s + 1e-9
        self.good[request.request_id] = in_time and request.phase is Phase.FINISHED
        if "/" in request.request_id:
            number = int(request.request_id.split("/")[0])
            session = self._sessions[number]
            if len(session.made) < len(session.lengths):
                at_s = now_s + session.pauses_s[len(session.made)]
                heapq.heappush(self._due, (at_s, 1_000_000_000 + number, number))


def answers(options: argparse.Namespace, seed: int, *, told: bool) -> tuple[float, float, float]:
    """Of the tenant: whole answers in time, and good by TTFT and TBT; of the others: good. Percent."""
    loads = []
    for tenant, load in ((TENANT, options.load), (OTHERS, options.beside)):
        kind, _, rate = load.partition(":")
        made = arrivals(kind, float(rate), options.duration_s, seed)
        loads += [replace(one, tenant=tenant, request_id=f"{tenant}{one.request_id}") for one in made]
    slo = replace(TARGET.slo, e2e_s=options.within_s if told else None)
    drive = Drive(options.policy, {TENANT: replace(TARGET, slo=slo), OTHERS: TARGET}, None)
    drive.run(loads)
    mine = [one for one in loads if one.tenant == TENANT]
    whole = [(one.end_s or math.inf) - one.arrival_s <= options.within_s for one in mine]
    return share(whole), share([drive.good[one.request_id] for one in mine]), others(drive)


def agents(options: argparse.Namespace, seed: int, *, told: bool) -> tuple[float, float, float]:
    """The same of sessions."""
    kind, _, rate = options.beside.partition(":")
    made = arrivals(kind, float(rate), options.duration_s, seed)
    loads = [replace(one, tenant=OTHERS, request_id=f"{OTHERS}{one.request_id}") for one in made]
    found = sessions(options.sessions_per_s, options.duration_s, seed)
    drive = Drive(options.policy, {TENANT: TARGET, OTHERS: TARGET}, options.session_s if told else None)
    drive.run(loads, found)
    calls = [flag for name, flag in drive.good.items() if "/" in name]
    return share([one.is_in_time(options.session_s) for one in found]), share(calls), others(drive)


def others(drive: Drive) -> float:
    """Of the others, good."""
    return share([flag for name, flag in drive.good.items() if name.startswith(OTHERS)])


def share(flags: Sequence[bool]) -> float:
    """In percent."""
    return 100.0 * sum(flags) / len(flags) if flags else math.nan


def main() -> None:
    """Print what is in time with the targets told and not told."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--load", default="held-summaries:5", help="of the tenant, KIND:RATE")
    parser.add_argument("--beside", default="held-documents:1.7", help="of the others")
    parser.add_argument("--within-s", type=float, default=8.0, help="the target of a whole answer")
    parser.add_argument("--sessions-per-s", type=float, default=0.4)
    parser.add_argument("--session-s", type=float, default=60.0, help="the target of a session")
    parser.add_argument("--duration-s", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", choices=("answers", "agents"))
    options = parser.parse_args()
    table = Table(title=f"{options.policy}, with targets told and not told")
    for column in ("what", "seed", "told", "whole in time %", "good %", "others good %"):
        table.add_column(column)
    for what in (answers, agents):
        if options.only in (None, what.__name__):
            for seed in range(1, options.seeds + 1):
                for told in (False, True):
                    found = what(options, seed, told=told)
                    table.add_row(what.__name__, str(seed), str(told), *(f"{one:.1f}" for one in found))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
