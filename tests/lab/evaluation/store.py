"""Results on disk: written as they come, and used again for as long as the code behind them is the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from pdmuxd.daemon.compare.plan import ComparePlan
from pdmuxd.daemon.report.files import write_file
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.emulator.digits import rounded
from pdmuxd.engine.emulator.profile import load_profile

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "engine"
POLICIES = ENGINE / "core" / "policies"
_IMPORT = re.compile(r"^from pdmuxd\.engine\.core\.policies\.(\w+) import", re.MULTILINE)


class Store:
    """Entries by key, each with the fingerprint of what it was made with: one a line, six digits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, dict[str, Any]] = _read(path) if path.exists() else {}

    def get(self, key: str, made_with: str) -> Any:
        """The value, or None if there is none or it was made with something else."""
        entry = self._entries.get(key)
        return entry["value"] if entry is not None and entry["made_with"] == made_with else None

    def put(self, key: str, made_with: str, value: object) -> None:
        """Keep a value, at once."""
        self._entries[key] = {"made_with": made_with, "value": rounded(msgspec.to_builtins(value))}
        lines = (
            msgspec.json.encode(key) + b":" + msgspec.json.encode(entry)
            for key, entry in sorted(self._entries.items())
        )
        write_file(self._path, b"{\n" + b",\n".join(lines) + b"\n}\n")

    def once(self, key: str, made_with: str, make: Callable[[], object]) -> Any:
        """The value as it is kept, made now if it is not there."""
        if self.get(key, made_with) is None:
            self.put(key, made_with, make())
        return self.get(key, made_with)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise SettingsError(f"{path}: not results of an evaluation ({error}); remove it") from None


def fingerprint(plan: ComparePlan, policy: str, *more: object) -> str:
    """Of the settings of a plan and of all code that decides what the policy does in the emulator."""
    trace = plan.trace
    settings = (
        trace.path.name,
        len(trace.requests),
        sum(r.input_tokens for r in trace.requests),
        plan.ttft_fixed_s,
        plan.ttft_per_1k_new_tokens_s,
        plan.attainment_ratio,
        plan.seconds,
        plan.seeds,
        plan.shuffle,
        plan.resolution,
        plan.doublings,
        more,
    )
    return _digest(repr((settings, _code(policy, plan.profile.name))).encode())


@cache
def _code(policy: str, profile: str) -> str:
    """Another policy's change leaves this one's results alone."""
    head, _, inner = policy.partition("/")  # pla/POLICY and slack/POLICY are made of both
    if head.startswith("pla"):
        inner = inner or "muxwise"
    parts = [policy, *([inner] if inner else [])]
    names = set()
    for part in parts:
        built = build_policy(part, load_profile(profile).policy_context)
        names |= {type(built).__module__.rpartition(".")[2], part.partition(":")[0].replace("-", "_")}
    pending, files = names, set()
    while pending:
        path = POLICIES / f"{pending.pop()}.py"
        if path.exists() and path not in files:
            files.add(path)
            pending |= set(_IMPORT.findall(path.read_text()))
    files |= {
        *(ENGINE / "core").glob("*.py"),
        *(ENGINE / "emulator").glob("*.py"),
        *(ENGINE / "loop").glob("*.py"),
    }
    files.add(ENGINE / "emulator" / "profiles" / f"{profile}.json")
    return _digest(b"\0".join(path.read_bytes() for path in sorted(files)))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
