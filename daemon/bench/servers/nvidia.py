"""What nvidia-smi says of this machine's GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess

FREE_BYTES = 8 * 2**30
"""Less than this in use: a server that starts has contexts, one that served has a KV pool."""


def gpu_name() -> str:
    """Name and driver of the first GPU; `none` where there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return "none"
    return (
        _said("--query-gpu=name,driver_version", "--format=csv,noheader").partition("\n")[0].strip() or "none"
    )


def used_bytes(visible: str | None = None) -> int:
    """Memory in use on the fullest GPU, of the `visible` ones or those that this process may use; 0 where
    there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return 0
    visible = visible or os.environ.get("CUDA_VISIBLE_DEVICES")
    only = ("-i", visible) if visible else ()
    said = _said("--query-gpu=memory.used", "--format=csv,noheader,nounits", *only)
    return max((int(word) for word in said.split() if word.isdigit()), default=0) * 2**20


def _said(*words: str) -> str:
    command = ["nvidia-smi", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
