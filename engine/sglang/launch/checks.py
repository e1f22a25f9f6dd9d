"""What can be checked before SGLang is imported, which takes many seconds; each error is one line."""

from __future__ import annotations

import socket
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.api.versions import RANGE, check_supported
from pdmuxd.engine.sglang.launch.mode import NOT_GENERATING, class_names
from pdmuxd.engine.sglang.model_config import read_config

ENTRY_POINT_GROUP = "sglang.srt.plugins"
PLUGIN = "pdmuxd"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def check_environment() -> str:
    """SGLang is here, in a supported version, with the plugin; returns the version. Raises: SettingsError."""
    try:
        version = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        raise SettingsError(
            f"SGLang is not installed in this Python; install pdmuxd[sglang] (SGLang {RANGE})"
        ) from None
    check_supported(version)
    names = {point.name for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if PLUGIN not in names:
        raise SettingsError(
            f"the plugin {PLUGIN} is not registered in this Python ({ENTRY_POINT_GROUP} has "
            f"{', '.join(sorted(names)) or 'nothing'}); install pdmuxd itself there, not only its sources"
        )
    if find_spec("greenlet") is None:
        raise SettingsError(
            "greenlet is not installed in this Python; install pdmuxd[sglang], not pdmuxd alone"
        )
    return version


def check_model(model: str) -> None:
    """A path must be a model's folder; anything else is taken for a hub's name. Raises: SettingsError."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise SettingsError(f"{model} is no model folder: it has no config.json")
        config = read_config(path)
        if config is None:
            raise SettingsError(f"{path / 'config.json'} is no JSON object that can be read")
        for name in sorted(class_names(config) & NOT_GENERATING):
            raise SettingsError(f"{model} is of class {name}, which generates no tokens")
    elif path.exists():
        raise SettingsError(f"{model} is a file; allowed is a model's folder")
    elif model.startswith(("/", ".", "~")) or model.count("/") != 1:
        raise SettingsError(f"there is no model folder {model}")


def check_tp_size(model: str, tp_size: int, *, gpus: int | None) -> None:
    """The model's heads can be divided, and there are as many GPUs. Raises: SettingsError naming both."""
    if gpus is not None and tp_size > gpus:
        raise SettingsError(f"a tensor-parallel size of {tp_size} needs as many GPUs; here are {gpus}")
    config = read_config(Path(model).expanduser())
    if config is None:
        return  # on a hub
    try:
        text = config.get("text_config") or config
        heads = int(text["num_attention_heads"])
        kv_heads = int(text.get("num_key_value_heads") or heads)
    except (ValueError, LookupError, AttributeError, TypeError):
        return  # of a kind that SGLang has to read itself
    if not _divides(tp_size, heads, kv_heads):
        fits = (size for size in range(1, heads + 1) if _divides(size, heads, kv_heads))
        raise SettingsError(
            f"a tensor-parallel size of {tp_size} does not divide the model's {heads} attention heads and "
            f"{kv_heads} KV heads; allowed are {', '.join(map(str, fits))}"
        )


def _divides(tp_size: int, heads: int, kv_heads: int) -> bool:
    """Each GPU gets equally many heads, and equally many KV heads or a copy of one that others have, too."""
    if kv_heads <= 0 or heads % tp_size:
        return False
    return kv_heads % tp_size == 0 if kv_heads >= tp_size else tp_size % kv_heads == 0


def check_listening(host: str, port: int, *, key: str | None) -> None:
    """The address is free, and an engine without a key is on loopback. Raises: SettingsError."""
    if key is None and host not in LOOPBACK:
        raise SettingsError(f"the engine needs an API key to listen on {host}")
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from error
