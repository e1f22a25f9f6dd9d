"""Policies by name: what `--policy` accepts, and how a specification becomes a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.policies.base import Policy, PolicyContext
from pdmuxd.engine.core.policies.chunked import ChunkedPolicy
from pdmuxd.engine.core.policies.muxwise import MuxwisePolicy
from pdmuxd.engine.core.policies.static import StaticPolicy
from pdmuxd.engine.core.policies.upstream import UpstreamPolicy

DEFAULT_POLICY = "muxwise"
CHUNK_RANGE_TOKENS = (16, 131072)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """A policy as it is shown to people."""

    name: str
    syntax: str
    summary: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """A parsed specification; `build` may still refuse it for a device that cannot make its split."""

    text: str
    build: Callable[[PolicyContext], Policy]


def known_policies() -> tuple[PolicyInfo, ...]:
    """All policies, in the order in which they are listed to people."""
    return tuple(info for info, _ in _POLICIES.values())


def parse_policy(spec: str) -> PolicySpec:
    """Parse `name` or `name:arguments`. Raises: PolicyError naming what is known or allowed."""
    name, _, arguments = spec.strip().partition(":")
    entry = _POLICIES.get(name)
    if entry is None:
        known = ", ".join(info.syntax for info, _ in _POLICIES.values())
        raise PolicyError(f"unknown policy {name!r}; known are {known}")
    info, parse = entry
    return PolicySpec(text=spec.strip(), build=parse(info, arguments))


def build_policy(spec: str, context: PolicyContext) -> Policy:
    """Parse and build. Raises: PolicyError, PartitionError."""
    return parse_policy(spec).build(context)


def _refuse(info: PolicyInfo, arguments: str, allowed: str) -> PolicyError:
    return PolicyError(
        f"policy {info.name}: {arguments!r} is not allowed; {allowed} "
        f"(syntax {info.syntax}, e.g. {info.example})"
    )


def _whole_numbers(info: PolicyInfo, arguments: str, count: int, allowed: str) -> list[int]:
    parts = arguments.split(",")
    if len(parts) != count or not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise _refuse(info, arguments, allowed)
    return [int(part) for part in parts]


def _static(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], Policy]:
    prefill_sms, decode_sms = _whole_numbers(info, arguments, 2, "give prefill SMs and decode SMs")
    return lambda context: StaticPolicy.build(context, prefill_sms, decode_sms)


def _upstream(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], Policy]:
    if arguments:
        raise _refuse(info, arguments, "it takes no arguments")
    return UpstreamPolicy.build


def _chunked(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], Policy]:
    low, high = CHUNK_RANGE_TOKENS
    allowed = f"give a token budget from {low} to {high}"
    (budget,) = _whole_numbers(info, arguments, 1, allowed)
    if not low <= budget <= high:
        raise _refuse(info, arguments, allowed)
    return lambda context: ChunkedPolicy.build(context, budget)


def _muxwise(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], Policy]:
    if arguments not in ("", "preempt"):
        raise _refuse(info, arguments, "the only option is 'preempt'")
    return lambda context: MuxwisePolicy.build(context, preemption=arguments == "preempt")


_Parse = Callable[[PolicyInfo, str], Callable[[PolicyContext], Policy]]

_POLICIES: dict[str, tuple[PolicyInfo, _Parse]] = {
    info.name: (info, parse)
    for info, parse in (
        (
            PolicyInfo(
                name="muxwise",
                syntax="muxwise[:preempt]",
                summary="fewest decode SMs that meet the TBT target under the guard; the rest prefill",
                example="muxwise",
            ),
            _muxwise,
        ),
        (
            PolicyInfo(
                name="chunked",
                syntax="chunked:N",
                summary="one fused batch of at most N tokens on all SMs (Sarathi-style mixed chunks)",
                example="chunked:512",
            ),
            _chunked,
        ),
        (
            PolicyInfo(
                name="upstream",
                syntax="upstream",
                summary="SGLang's own multiplexing rule: the split follows the decode batch size alone",
                example="upstream",
            ),
            _upstream,
        ),
        (
            PolicyInfo(
                name="static",
                syntax="static:P,D",
                summary="one fixed split of P prefill SMs and D decode SMs",
                example="static:96,36",
            ),
            _static,
        ),
    )
}
