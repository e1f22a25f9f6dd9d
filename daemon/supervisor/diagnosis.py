"""What an engine's log says: how far a start has come, and why it failed.

An engine that fails ends in whatever way its libraries do, SGLang's by killing itself. So the reason is
looked for in its log: first what is known, then the last exception.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pdmuxd.engine.core.errors import EngineError, EngineSetupError, LinkError, LinkProtocolError

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
    _known(r"^error: (SGLang's flag .+)$", "engine.sglang.extra_args: {0}", permanent=True),
    _known(r"^error: (.+)$", "{0}", permanent=True),
    _known(r"^pdmuxd plugin: (.+)$", "the plugin stopped the engine: {0}", permanent=True),
    _known(
        r"Error: ((?:CUDA out of memory|CUDA error: out of memory|Not enough memory|"
        r"The memory capacity is unbalanced|cu\w+(?:\(\d+\))? failed: CUDA_ERROR_OUT_OF_MEMORY)[^\n]*)",
        "the GPU has too little free memory (--mem-fraction-static in engine.sglang.extra_args, "
        "engine.sglang.tp_size, a smaller model, or who else uses the GPU): {0}",
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
        # What SGLang's models check has no message; Python prints the line.
        r"^ +(assert [^\n]*tp_size[^\n]*)\n[ ^~]*\n?AssertionError$",
        "engine.sglang.tp_size does not fit the model: {0}",
        permanent=True,
    ),
    _known(
        r"((?:CUDA driver version is insufficient|no kernel image is available|Found no NVIDIA driver|"
        r"The NVIDIA driver on your system is too old|system has unsupported display driver|"
        r"forward compatibility was attempted on non supported HW)[^\n]*)",
        "the GPU's driver does not fit this SGLang: {0}",
        permanent=True,
    ),
    _known(
        r"(CUBLAS_STATUS_EXECUTION_FAILED[^\n]*)",
        "a matrix product cannot run on one of the partitions (engine.sglang.partitions): {0}",
        permanent=True,
    ),
    _known(
        r"EngineError: ((?:cu[A-Z]\w+(?:\(\d+\))? failed|the driver |partition |cuda-python )[^\n]*)",
        "the GPU or its driver cannot make the partitions: {0}",
        permanent=True,
    ),
    _known(
        r"^pdmuxd\.engine\.core\.errors\.\w+: (.+)$", "the plugin stopped the engine: {0}", permanent=True
    ),
    _known(r"Class validation error for validator [^\n]*\n\s*\w+: ([^\n]+)", _MODEL, permanent=True),
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
    ("Capture target prefill", "capturing graphs of fused batches"),
    ("Capture target decode", "capturing decode graphs"),
    ("Application startup complete", "warming up"),
)
"""What SGLang 0.5.23 logs, and what the engine does from then on."""
_PARTS = re.compile(r"\d+ s: [^\n]+")
"""How the last of its lines goes on."""
_PART = "pdmuxd: start: "
"""Behind it the plugin says what it begins, and at the end what each part took."""


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
    part = log.rfind(_PART)
    told = log[part + len(_PART) :].partition("\n")[0].strip()
    found.append((part, "starting its server" if _PARTS.match(told) else told))
    at, doing = max(found)
    return doing if at >= 0 else None


def parts_of_start(log: str) -> str | None:
    """How long an engine's start took, and each part of it; None before it is over, or if it does not say."""
    at = log.rfind(_PART)
    found = _PARTS.match(log[at + len(_PART) :]) if at >= 0 else None
    return found[0] if found is not None else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def not_understood(error: LinkError) -> EngineError:
    """Why an engine that has not introduced itself cannot be read."""
    if isinstance(error, LinkProtocolError):
        return EngineSetupError(
            f"{error}: the engine's Python (engine.sglang.python) has another pdmuxd than the daemon; "
            "install the same one in both"
        )
    return EngineError(f"the engine cannot be understood: {error}")
