"""The variants of a policy with one of its mechanisms off."""

from __future__ import annotations

from collections.abc import Iterable

from pdmuxd.engine.core.policies.duet import DEFAULT_TOKEN_BUDGET

SWITCHES = {
    "auto": ("nopreempt", "nonest", "noguard", "nolookahead", "noclasses", "nosplit", "nofuse", "fcfs"),
    "muxwise": ("noguard", "whole", "blocking"),
    "drift": ("nopreempt", "whole", "blocking"),
    "duet": ("nolookahead",),
    "pla": ("nodeadline", "nograph"),
}
"""What each policy's specification can switch off (docs/compare.md says what each means)."""

EXCLUDED = {"nosplit": "nofuse", "nofuse": "nosplit"}
"""A switch, and what it cannot be combined with."""


def variants(spec: str) -> tuple[str, ...]:
    """`spec` with one mechanism off at a time; none for a policy without switches."""
    if spec.partition("/")[0].split("+")[0] == "pla":
        return _queue_variants(spec)
    name, _, arguments = spec.partition(":")
    given = arguments.split("+") if arguments else _spelled_out(name)
    switches = [
        switch
        for switch in SWITCHES.get(name, ())
        if switch not in given and EXCLUDED.get(switch) not in given
    ]
    return tuple(f"{name}:{'+'.join([*given, switch])}" for switch in switches)


def _queue_variants(spec: str) -> tuple[str, ...]:
    """pla's own options; those of the policy behind it stay as they are."""
    head, slash, inner = spec.partition("/")
    switches = [switch for switch in SWITCHES["pla"] if switch not in head.split("+")]
    return tuple(f"{head}+{switch}{slash}{inner}" for switch in switches)


def _spelled_out(name: str) -> list[str]:
    """duet's options follow its token budget, which its bare name leaves out."""
    return [str(DEFAULT_TOKEN_BUDGET)] if name == "duet" else []


def with_ablations(specs: Iterable[str]) -> tuple[str, ...]:
    """Every policy followed by its variants, each once."""
    return tuple(dict.fromkeys(one for spec in specs for one in (spec, *variants(spec))))
