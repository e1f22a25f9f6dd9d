"""Adapters on a hub, and weights that PyTorch has pickled: only the engine's process can look into them.

The daemon's environment has neither PyTorch nor a hub's client.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.launch.adapters import WEIGHTS, Shapes, check_adapters, is_on_hub
from pdmuxd.engine.sglang.launch.flags import ADAPTERS, adapters, value_of

_OF_ADAPTER = ("*.json", *WEIGHTS)
"""Files that SGLang reads of an adapter."""
_UNREADABLE = (
    *(OSError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, MemoryError, ArithmeticError),
    *(ValueError, RuntimeError, TypeError, LookupError, AttributeError, AssertionError),
)
"""What `torch.load` raised for files of which a few bytes were changed, and what its code raises."""


def check_all_adapters(model: str, extra: Sequence[str]) -> tuple[str, ...]:
    """Fetch adapters that are on a hub, as SGLang would, and compare each with the model.

    Returns SGLang's flags with a folder for each hub's name, so that SGLang serves what was compared.
    Raises: SettingsError naming the adapter, or the model if there is nothing to compare with.
    """
    asked = adapters(extra)
    if not asked:
        return tuple(extra)
    words = list(extra)
    for tenant, name in asked.items():
        if is_on_hub(name):
            folder = _fetch(name, _OF_ADAPTER, f"{ADAPTERS}: {tenant}'s adapter")
            given = f"{tenant}={name}"
            ours = {given: f"{tenant}={folder}", f"{ADAPTERS}={given}": f"{ADAPTERS}={tenant}={folder}"}
            words = [ours.get(word, word) for word in words]
    if is_on_hub(model):
        revision = value_of("--revision", extra)
        folder = _fetch(model, ("config.json",), f"{ADAPTERS} cannot be compared with", revision=revision)
        if not (folder / "config.json").is_file():
            raise SettingsError(f"SGLang's flag {ADAPTERS} cannot be compared with {model}: no config.json")
        model = str(folder)
    check_adapters(model, words, read_pickled=pickled_shapes)
    return tuple(words)


def _fetch(name: str, patterns: Sequence[str], what: str, *, revision: str | None = None) -> Path:
    """The folder of the hub's cache; without the hub, what is in it already."""
    import httpx
    from huggingface_hub import snapshot_download  # half a second, which most starts save

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        said = str(error).strip().partition("\n")[0]
        raise SettingsError(
            f"SGLang's flag {what} {name}, which is no folder and was not fetched from the hub: {said}"
        ) from error


def pickled_shapes(file: Path) -> Shapes | None:
    """The shapes of what `torch.save` has written, of tensors alone; None for anything else.

    Nothing in the file is run (`weights_only`). Weights stay on disk; only files of PyTorch 1.5 and older are
    read whole.
    """
    import torch  # seconds, which SGLang needs afterwards

    try:
        with_mmap = zipfile.is_zipfile(file)
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=with_mmap)
    except _UNREADABLE:
        return None
    if not isinstance(state, dict):
        return None
    shapes = {name: list(value.shape) for name, value in state.items() if isinstance(value, torch.Tensor)}
    return shapes if len(shapes) == len(state) and all(isinstance(name, str) for name in shapes) else None
