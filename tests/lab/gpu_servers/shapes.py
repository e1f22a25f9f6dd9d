"""The shapes of `model_folder.py` as models that are served, with made-up weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpu_servers.model_folder import SHAPES, write_model_folder
from pdmuxd.daemon.bench.models import CONTEXT_TOKENS, DUMMY, ServedModel

EMULATED_AS_MEASURED = ("llama-8b", "codellama-34b", "qwen3-8b", "qwen3-14b")
"""Models whose emulator profile was measured."""


def shape_model(name: str, work: Path, config: Mapping[str, object]) -> ServedModel:
    """A shape of `model_folder` with `config` over its own; its folder is written to `work`."""
    emulated = "llama-8b" if name == "tiny" else name
    profile = f"h200-{emulated}-measured" if emulated in EMULATED_AS_MEASURED else f"h200-{emulated}"
    return ServedModel(
        name=name,
        folder=write_model_folder(name, work / name, **config),
        vocab=int(SHAPES[name]["vocab_size"]),
        context_tokens=int(config.get("max_position_embeddings", CONTEXT_TOKENS)),  # type: ignore[call-overload]
        flags=DUMMY,
        emulator_profile=profile,
    )
