"""Writes a pdmuxd.toml with every key, its default and what is allowed, read off the model."""

from __future__ import annotations

import json
import textwrap

from pdmuxd.daemon.settings.keys import Key, all_keys

_WIDTH = 100
_HEAD = """\
# pdmuxd.toml: everything that can be set, with its default. Looked for in this order: --config,
# $PDMUXD_CONFIG, ./pdmuxd.toml, /etc/pdmuxd/pdmuxd.toml; only the first that is found is read.
# A flag (--set data.port=8090) wins over the environment (PDMUXD_DATA__PORT=8090), which wins over
# this file. A key that is not listed here is an error.
"""
_SAMPLES = {
    "state_dir": "/var/lib/pdmuxd",
    "runtime_dir": "/run/pdmuxd",
    "database_url": "sqlite:////var/lib/pdmuxd/pdmuxd.db",
    "admin.token_file": "/var/lib/pdmuxd/admin-token",
    "admin.reader_token_file": "/var/lib/pdmuxd/reader-token.sha256",
    "tracing.endpoint": "http://127.0.0.1:4318/v1/traces",
    "engine.model_name": "llama-3.1-8b-instruct",
    "engine.start_timeout_s": 600.0,
    "engine.sglang.model": "/srv/models/llama-3.1-8b-instruct",
    "engine.sglang.python": "/opt/sglang/bin/python",
    "engine.sglang.partitions": "116,16;100,32",
}
"""What stands in the comment for a key without a fixed default."""


def example_toml() -> str:
    """The text of a commented pdmuxd.toml that sets every key to its default."""
    lines = [_HEAD]
    section = ""
    for key in all_keys():
        table, _, name = key.name.rpartition(".")
        if table != section:
            section = table
            lines += [f"[{table}]", ""]
        lines += [*_comment(key), _assignment(key, name), ""]
    return "\n".join(lines)


def _comment(key: Key) -> list[str]:
    allowed = f"Allowed: {key.allowed}{f', in {key.unit}' if key.unit else ''}."
    return textwrap.wrap(
        f"{key.summary} {allowed}",
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
    )


def _assignment(key: Key, name: str) -> str:
    if key.default is None:
        return f"# {name} = {json.dumps(_SAMPLES[key.name])}"
    return f"{name} = {json.dumps(key.default)}"
