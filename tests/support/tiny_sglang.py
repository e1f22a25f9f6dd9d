"""A daemon's arguments for SGLang on the CPU, with a small model of random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sglang_processes import STRUCTURED, daemon_settings, environment

from gpu_servers.model_folder import write_model_folder, write_weights

START_S = 600


def on_sglang(python: Path, folder: Path) -> dict[str, Any]:
    """The model is written to `folder`; `python` has SGLang."""
    model = write_weights(write_model_folder("tiny", folder / "tiny", torch_dtype="float32"))
    settings = [*daemon_settings(python, model, *STRUCTURED), f"engine.start_timeout_s={START_S}"]
    return {"settings": settings, "environ": environment(), "start_s": START_S + 100}
