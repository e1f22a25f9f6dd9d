"""What an engine's log says: how far a start has come, and why it failed.

An engine that fails ends in whatever way its libraries do, SGLang's by killing itself. So the reason is
looked for in its log: first what is known, then the last exception.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why an engine failed, as one sentence."""

    text: str
    is_permanent: bool
    """It will fail again until a person changes something."""


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: re.Pattern[str]
    text: str
    """`{0}` is what the pattern's first group found."""
    is_permanent: bool


def _known(pattern: str, text: str, *, permanent: bool) -> _Known:
    return _Known(re.compile(pattern, re.MULTILINE), text, permanent)


_EXCEPTION = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_MODEL = "the model cannot be loaded (engine.sglang.model): {0}"

# The first of this table that is found counts: what says more stands before what says less.
KNOWN = (
    _known(r"^error: (cannot listen on .+)$", "{0}", permanent=False),
    _known(r"^error: (.+)$", "{0}", permanent=True),
    _known(r"^pdmuxd plugin: (.+)$", "the plugin stopped the engine: {0}", permanent=True),
    _known(
        r"(?:OutOfMemoryError: |RuntimeError: )((?:CUDA out of memory|Not enough memory)[^\n]*)",
        "the GPU has too little free memory: {0} (--mem-fraction-static in engine.sglang.extra_args, "
        "or engine.sglang.tp_size, or a smaller model)",
        permanent=False,
    ),
    _known(r"(address already in use)", "a port of the engine is in use: {0}", permanent=False),
    _known(
        r"((?:invalid device ordinal|CUDA_ERROR_INVALID_DEVICE|is not enough GPUs)[^\n]*)",
        "there are fewer GPUs than engine.sglang.tp_size asks for: {0}",
        permanent=True,
    ),
    _known(
        r"Error: ?([^\n]*(?:not divisible by|must be divisible)[^\n]*)",
        "engine.sglang.tp_size does not fit the model: {0}",
        permanent=True,
    ),
    _known(
        r"((?:CUDA driver version is insufficient|cuGreenCtx\w+|no kernel image is available)[^\n]*)",
        "the GPU or its driver cannot do this: {0}",
        permanent=True,
    ),
    _known(r"Error: (Cannot find model module[^\n]*)", _MODEL, permanent=True),
    _known(r"Error: (Model architectures [^\n]* not supported[^\n]*)", _MODEL, permanent=True),
    _known(r"Error: (The checkpoint you are trying to load[^\n]*)", _MODEL, permanent=True),
    _known(r"Error: (It looks like the config file[^\n]*)", _MODEL, permanent=True),
    _known(r"Error: (Can't load the [^\n]*)", _MODEL, permanent=True),
    _known(r"Error: (Cannot find any model weights[^\n]*)", _MODEL, permanent=True),
    _known(r"Error: ([^\n]*is not a valid model identifier[^\n]*)", _MODEL, permanent=True),
    _known(r"(Error while deserializing header[^\n]*)", _MODEL, permanent=True),
    _known(r"Error: (unrecognized arguments?: [^\n]*)", "engine.sglang.extra_args: {0}", permanent=True),
    _known(r"^.*: error: (.+)$", "engine.sglang.extra_args: {0}", permanent=True),
    _known(r"([Ww]atchdog timeout[^\n]*)", "the engine hung and ended itself: {0}", permanent=False),
)

_STAGES = (
    ("Load weight begin", "loading the model's weights"),
    ("Load weight end", "making the KV pool"),
    ("Capture cuda graph begin", "capturing decode graphs"),
    ("Capture decode cuda graph", "capturing decode graphs"),
    ("Application startup complete", "warming up"),
)
"""What SGLang logs, and what it does from then on."""


def diagnose(log: str) -> Diagnosis | None:
    """The reason in the log of one engine; None if there is nothing that looks like one."""
    for known in KNOWN:
        found = known.pattern.search(log)
        if found is not None:
            return Diagnosis(
                text=_short(known.text.format(found[1].strip())), is_permanent=known.is_permanent
            )
    # Of a chain of exceptions the last is what the program meant to say.
    exceptions = list(_EXCEPTION.finditer(log))
    if not exceptions:
        return None
    name, text = exceptions[-1].groups()
    return Diagnosis(text=_short(f"{name}: {text}"), is_permanent=False)


def stage(log: str) -> str | None:
    """What a starting engine is doing; None before it says anything that is known."""
    found = [(log.rfind(mark), doing) for mark, doing in _STAGES]
    at, doing = max(found)
    return doing if at >= 0 else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
