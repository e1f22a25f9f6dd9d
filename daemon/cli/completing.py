"""What the shell offers as values of options. It waits for the answer, so little is imported."""

from __future__ import annotations

from typing import get_args


def policies(incomplete: str) -> list[tuple[str, str]]:
    """The names of the policies, each with what it does."""
    from pdmuxd.engine.core.policies.registry import known_policies

    found = [(info.name, info.summary) for info in known_policies()]
    return [(name, summary) for name, summary in found if name.startswith(incomplete)]


def engine_kinds(incomplete: str) -> list[str]:
    """The values of engine.kind."""
    from pdmuxd.daemon.settings.engine import EngineKind

    return [kind for kind in get_args(EngineKind) if kind.startswith(incomplete)]


def profiles(incomplete: str) -> list[str]:
    """The profiles that come with the emulator."""
    from pdmuxd.engine.emulator.profile import available_profiles

    return [name for name in available_profiles() if name.startswith(incomplete)]


def trace_formats(incomplete: str) -> list[str]:
    """The formats of traces, those of other packages included."""
    from pdmuxd.daemon.replay.formats.read import known_formats

    return [name for name in known_formats() if name.startswith(incomplete)]
