"""A policy and a trace format of another package. `docs/extending.md` explains both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pdmuxd.daemon.replay.formats.lines import Line
from pdmuxd.daemon.replay.trace import TraceRequest, line_error
from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.chunked import ChunkedPolicy
from pdmuxd.engine.core.policies.installed import InstalledPolicy
from pdmuxd.engine.core.types import Decision, Observation


class HalvedPolicy(ChunkedPolicy):
    """A budget of N tokens a step, and half of it while requests decode."""

    def decide(self, obs: Observation, state: None) -> tuple[Decision, None]:
        """Decide as `chunked:N` does, with the budget of this step."""
        decision, state = super().decide(obs, state)
        budget = decision.token_budget
        return replace(decision, token_budget=budget // 2 if obs.decode.bs else budget), state


def parse(arguments: str) -> Callable[[PolicyContext], ChunkedPolicy]:
    """Give the function that builds the policy, or say what is allowed."""
    if not arguments.isdecimal() or not 32 <= int(arguments) <= 65536:
        raise PolicyError(
            f"policy halved: {arguments!r} is not allowed; give a token budget from 32 to 65536"
        )
    return lambda context: replace(HalvedPolicy.build(context, int(arguments)), name=f"halved:{arguments}")


HALVED = InstalledPolicy(
    syntax="halved:N",
    summary="half of N tokens a step while requests decode",
    example="halved:512",
    parse=parse,
)


def read_seconds(path: Path, lines: Iterable[Line]) -> Iterator[TraceRequest]:
    """Read lines of `seconds,input tokens,output tokens`."""
    for line in lines:
        try:
            at, read, written = line.data.split(b",")
            yield TraceRequest(
                line=line.number,
                arrival_s=float(at),
                tenant="default",
                input_tokens=int(read),
                output_tokens=int(written),
            )
        except ValueError:
            raise line_error(path, line.number, "allowed are seconds,input tokens,output tokens") from None
