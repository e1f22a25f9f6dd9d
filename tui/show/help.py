"""The text of the help."""

from __future__ import annotations

from collections.abc import Sequence

COMMON = """\
STALE and an age mark figures that are no longer news. LAG: this console is behind the daemon; it leaves
frames out, never events. "events lost": the daemon no longer had what was missed while away."""


def help_text(name: str, text: str, keys: Sequence[tuple[str, str]]) -> str:
    """The screen, the marks of all screens, the keys."""
    listed = "\n".join(f"  {key:<10} {what}" for key, what in keys)
    return f"{name.capitalize()}\n\n{' '.join(text.split())}\n\n{' '.join(COMMON.split())}\n\nKeys\n{listed}"
