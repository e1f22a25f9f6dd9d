"""Policies of other packages: entry points of the group `pdmuxd.policies`, read where a name is not ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.policies.base import AnyPolicy, PolicyContext

GROUP = "pdmuxd.policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPolicy:
    """What such an entry point names: the policy as people see it, and how its arguments become a policy."""

    syntax: str
    summary: str
    example: str
    parse: Callable[[str], Callable[[PolicyContext], AnyPolicy]]
    """Given what follows the colon. Raises: PolicyError."""
    unsplit: str | None = None
    """The policy in force where the model cannot be prefilled by layers; None if this one never splits."""


def installed_names() -> tuple[str, ...]:
    """The names that other packages give to policies, without importing any of them."""
    return tuple(sorted(entry_points(group=GROUP).names))


def installed_policy(name: str) -> InstalledPolicy | None:
    """The policy of another package, or None.

    Raises: PolicyError if it cannot be loaded, or if two packages have one of this name.
    """
    found = tuple(entry_points(group=GROUP, name=name))
    if not found:
        return None
    if len(found) > 1:
        raise PolicyError(f"policy {name!r} is in several packages: {', '.join(map(_package, found))}")
    try:
        policy = found[0].load()
    except Exception as error:
        raise _refused(name, found[0], f"{type(error).__name__}: {error}") from error
    if not isinstance(policy, InstalledPolicy):
        raise _refused(name, found[0], f"{found[0].value} is no InstalledPolicy")
    return policy


def _refused(name: str, point: EntryPoint, why: str) -> PolicyError:
    return PolicyError(f"policy {name!r} of the package {_package(point)} cannot be loaded: {why}")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
