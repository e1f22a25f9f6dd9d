"""Policies by name: what `--policy` accepts, and how a specification becomes a policy.

A longer file, as the half of it is a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.policies.auto import AutoPolicy
from pdmuxd.engine.core.policies.autobatch import AutoOptions
from pdmuxd.engine.core.policies.base import AnyPolicy, PolicyContext
from pdmuxd.engine.core.policies.bestfit import SplitOptions
from pdmuxd.engine.core.policies.chunked import ChunkedPolicy
from pdmuxd.engine.core.policies.drift import drift
from pdmuxd.engine.core.policies.duet import DEFAULT_TOKEN_BUDGET, DuetPolicy
from pdmuxd.engine.core.policies.fusedsteps import FIXED_STEP_TOKENS
from pdmuxd.engine.core.policies.installed import installed_names, installed_policy
from pdmuxd.engine.core.policies.muxwise import muxwise
from pdmuxd.engine.core.policies.ordered import OrderedPolicy, QueueRule
from pdmuxd.engine.core.policies.pla import PlaOptions, PlaPolicy
from pdmuxd.engine.core.policies.prefill_first import DEFAULT_CHUNK_TOKENS, PrefillFirstPolicy
from pdmuxd.engine.core.policies.static import StaticPolicy
from pdmuxd.engine.core.policies.upstream import UpstreamPolicy

DEFAULT_POLICY = "auto"
DEFAULT_PLA_INNER = "muxwise"
FLEET_POLICY = "pla-spatial"
"""Known by name only: a rule for routing between engines (emulator/fleet.py), not a policy of one engine."""
NO_PREFILL_GRAPHS = "SGLang captures no prefills, so short prompts run without graphs (as with +nograph)"
CHUNK_RANGE_TOKENS = (16, 131072)
_NEVER_SPLIT = ("chunked", "prefill-first")
_IN_ORDER = "auto:nosplit+fcfs+noclasses"
"""Fused steps for policies that take the queue as it comes and know no TBT classes."""


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
    build: Callable[[PolicyContext], AnyPolicy]
    unsplit: str
    """What is in force in its place where the model cannot be prefilled by layers: fused steps within the TBT
    target, with this policy's order of the queue; the text itself of a policy that never splits."""
    wants_prefill_graphs: bool = False
    """It runs short prompts as captured graphs where the engine has them."""

    @property
    def may_split(self) -> bool:
        """Whether it asks for prefill by layers."""
        return self.unsplit != self.text


def known_policies() -> tuple[PolicyInfo, ...]:
    """All policies, in the order in which they are listed to people; those of other packages last."""
    return (*(info for info, _ in _POLICIES.values()), _PLA, *_ORDERS.values(), *_of_others())


def parse_policy(spec: str) -> PolicySpec:
    """Parse `name`, `name:arguments`, or a policy behind `pla/`, `slack/` or `edf/`.

    Raises: PolicyError naming what is known or allowed.
    """
    spec = spec.strip()
    head, slash, inner = spec.partition("/")
    queue, *options = head.split("+")
    if queue == _PLA.name:
        inner = inner if slash else DEFAULT_PLA_INNER
        build = _pla(spec, options, inner)
        inside = parse_policy(inner)
        unsplit = f"{head}/{inside.unsplit}" if inside.may_split else spec
        graphs = "nograph" not in options
        return PolicySpec(text=spec, build=build, unsplit=unsplit, wants_prefill_graphs=graphs)
    if head in _ORDERS:
        return _ordered(spec, _ORDERS[head], inner)
    name, _, arguments = spec.partition(":")
    if name == FLEET_POLICY:
        raise PolicyError(
            f"policy {name} assigns the instances of a fleet; a single engine cannot run it "
            "(use EmulatedFleet, with e.g. pla/muxwise on each instance)"
        )
    entry = _POLICIES.get(name)
    if entry is None and (other := installed_policy(name)) is not None:
        return PolicySpec(text=spec, build=other.parse(arguments), unsplit=other.unsplit or spec)
    if entry is None:
        known = ", ".join(info.syntax for info in known_policies())
        raise PolicyError(f"unknown policy {name!r}; known are {known}")
    info, parse = entry
    return PolicySpec(text=spec, build=parse(info, arguments), unsplit=_unsplit(spec, name, arguments))


def build_policy(spec: str, context: PolicyContext) -> AnyPolicy:
    """Parse and build. Raises: PolicyError, PartitionError."""
    return parse_policy(spec).build(context)


def _of_others() -> Iterator[PolicyInfo]:
    for name in installed_names():
        if name in _OURS:
            continue
        try:
            other = installed_policy(name)
        except PolicyError as error:
            yield PolicyInfo(name=name, syntax=name, summary=str(error), example=name)
        else:
            if other is not None:
                yield PolicyInfo(name=name, syntax=other.syntax, summary=other.summary, example=other.example)


def _unsplit(spec: str, name: str, arguments: str) -> str:
    """The specification that stands in where nothing can be split."""
    if name in _NEVER_SPLIT:
        return spec
    given = list(filter(None, arguments.split("+")))
    if name == "auto":
        kept = [option for option in given if option not in ("nosplit", "nofuse")]
        return spec if "nosplit" in given else "+".join(("auto:nosplit", *kept))
    preempts = "preempt" in given or (name == "drift" and "nopreempt" not in given)
    return _IN_ORDER if preempts else f"{_IN_ORDER}+nopreempt"


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


def _static(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    prefill_sms, decode_sms = _whole_numbers(info, arguments, 2, "give prefill SMs and decode SMs")
    return lambda context: StaticPolicy.build(context, prefill_sms, decode_sms)


def _upstream(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    if arguments:
        raise _refuse(info, arguments, "it takes no arguments")
    return UpstreamPolicy.build


def _budget(info: PolicyInfo, arguments: str) -> int:
    low, high = CHUNK_RANGE_TOKENS
    allowed = f"give a token budget from {low} to {high}"
    (budget,) = _whole_numbers(info, arguments, 1, allowed)
    if not low <= budget <= high:
        raise _refuse(info, arguments, allowed)
    return budget


def _chunked(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    budget = _budget(info, arguments)
    return lambda context: ChunkedPolicy.build(context, budget)


def _options(info: PolicyInfo, arguments: str, known: Mapping[str, str]) -> dict[str, bool]:
    """`a+b` as {field: value}; `known` maps an option to the SplitOptions field it flips."""
    defaults = SplitOptions()
    chosen: dict[str, bool] = {}
    for option in filter(None, arguments.split("+")):
        if option not in known:
            raise _refuse(info, arguments, f"options are {', '.join(known)}, joined by +")
        field = known[option]
        chosen[field] = not option.startswith("no") if field == "preemption" else not getattr(defaults, field)
    return chosen


_ABLATIONS = {"noguard": "guard", "whole": "layerwise", "blocking": "query_sync"}


def _muxwise(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    options = SplitOptions(**_options(info, arguments, {"preempt": "preemption", **_ABLATIONS}))
    return lambda context: muxwise(_name(info, arguments), context, options)


def _drift(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    known = {"nopreempt": "preemption", "whole": "layerwise", "blocking": "query_sync"}
    options = SplitOptions(**({"preemption": True} | _options(info, arguments, known)))
    return lambda context: drift(_name(info, arguments), context, options)


def _auto(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    known = {
        "nopreempt": "preemption",
        "nonest": "nesting",
        "noguard": "guard",
        "nolookahead": "look_ahead",
        "noclasses": "classes",
        "nosplit": "split",
        "nofuse": "fuse",
        "fcfs": "by_slack",
    }
    chosen = arguments.split("+") if arguments else []
    unknown = [option for option in chosen if option not in known]
    if unknown:
        raise _refuse(info, arguments, f"options are {', '.join(known)}, joined by +")
    if {"nosplit", "nofuse"} <= set(chosen):
        raise _refuse(info, arguments, "nosplit and nofuse together leave no way to prefill")
    options = AutoOptions(**{known[option]: False for option in chosen})
    return lambda context: AutoPolicy.build(_name(info, arguments), context, options)


def _duet(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    budget_text, _, option = arguments.partition("+")
    if option not in ("", "nolookahead"):
        raise _refuse(info, arguments, "the only option is 'nolookahead'")
    budget = _budget(info, budget_text or str(DEFAULT_TOKEN_BUDGET))
    look_ahead = not option
    return lambda context: DuetPolicy.build(_name(info, arguments), context, budget, look_ahead=look_ahead)


def _pla(spec: str, options: list[str], inner: str) -> Callable[[PolicyContext], AnyPolicy]:
    known = {"nodeadline": "deadlines", "nograph": "graphs"}
    unknown = [option for option in options if option not in known]
    if unknown:
        raise _refuse(_PLA, "+".join(unknown), f"options are {', '.join(known)}, each after a +")
    if inner.split("/")[0].split("+")[0] == _PLA.name:
        raise _refuse(_PLA, inner, "the inner policy is one of the others")
    inside = parse_policy(inner)
    chosen = PlaOptions(**{known[option]: False for option in options})
    return lambda context: PlaPolicy(name=spec, context=context, inner=inside.build(context), options=chosen)


def _ordered(spec: str, info: PolicyInfo, inner: str) -> PolicySpec:
    if not inner or inner.partition("/")[0] in _ORDERS:
        raise _refuse(info, inner, "name one policy that it goes before, other than an order")
    inside, rule = parse_policy(inner), QueueRule(info.name)
    return PolicySpec(
        text=spec,
        build=lambda context: OrderedPolicy(
            name=spec, context=context, rule=rule, inner=inside.build(context)
        ),
        unsplit=f"{info.name}/{inside.unsplit}" if inside.may_split else spec,
        wants_prefill_graphs=inside.wants_prefill_graphs,
    )


def _prefill_first(info: PolicyInfo, arguments: str) -> Callable[[PolicyContext], AnyPolicy]:
    chunk = _budget(info, arguments or str(DEFAULT_CHUNK_TOKENS))
    return lambda context: PrefillFirstPolicy.build(_name(info, arguments), context, chunk)


def _name(info: PolicyInfo, arguments: str) -> str:
    return f"{info.name}:{arguments}" if arguments else info.name


_PLA = PolicyInfo(
    name="pla",
    syntax="pla[+OPTION...][/POLICY]",
    summary="short and long prompts in queues of their own, shorts as captured graphs; any policy behind",
    example="pla/muxwise",
)

_ORDERS = {
    info.name: info
    for info in (
        PolicyInfo(
            name=QueueRule.SLACK.value,
            syntax="slack/POLICY",
            summary="auto's order of the queue before any policy: least slack first, the late behind",
            example="slack/muxwise",
        ),
        PolicyInfo(
            name=QueueRule.EDF.value,
            syntax="edf/POLICY",
            summary="earliest deadline first before any policy; nobody is given up",
            example="edf/muxwise",
        ),
    )
}

_Parse = Callable[[PolicyInfo, str], Callable[[PolicyContext], AnyPolicy]]

_POLICIES: dict[str, tuple[PolicyInfo, _Parse]] = {
    info.name: (info, parse)
    for info, parse in (
        (
            PolicyInfo(
                name="auto",
                syntax="auto[:OPTION+...]",
                summary="fused or split, whichever prefills sooner within the TBT target; least slack first",
                example="auto",
            ),
            _auto,
        ),
        (
            PolicyInfo(
                name="muxwise",
                syntax="muxwise[:OPTION+...]",
                summary="fewest decode SMs that meet the TBT target under the guard; the rest prefill",
                example="muxwise",
            ),
            _muxwise,
        ),
        (
            PolicyInfo(
                name="drift",
                syntax="drift[:OPTION+...]",
                summary="two splits, contention-free predictions, preemption by headroom",
                example="drift",
            ),
            _drift,
        ),
        (
            PolicyInfo(
                name="duet",
                syntax="duet[:N[+nolookahead]]",
                summary="fused unless the TBT target is at risk, else the split of highest token throughput",
                example="duet",
            ),
            _duet,
        ),
        (
            PolicyInfo(
                name="chunked",
                syntax="chunked:N",
                summary="one fused batch of at most N tokens on all SMs (Sarathi-style mixed chunks)",
                example=f"chunked:{FIXED_STEP_TOKENS}",
            ),
            _chunked,
        ),
        (
            PolicyInfo(
                name="prefill-first",
                syntax="prefill-first[:N]",
                summary="stock SGLang: prefill in chunks of N before any decode",
                example="prefill-first",
            ),
            _prefill_first,
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

_OURS = frozenset((*_POLICIES, _PLA.name, *_ORDERS, FLEET_POLICY))
"""Another package cannot take the place of one of these."""
