"""The models that are served: a user's own, or the emulator's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.engine.emulator.profile import load_profile

CONTEXT_TOKENS = 131_072
"""The context of a model that names none."""
DUMMY = ("--load-format", "dummy")
"""How long a step takes does not depend on the values of weights."""
_EMULATED_VOCABULARY = 32_000
LEAST_VOCABULARY = 512
"""Prompts are of ordinary tokens, which start above 300."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model, for SGLang and for the emulated engine."""

    name: str
    folder: Path
    """Unused by the emulated engine."""
    vocab: int
    context_tokens: int
    """The most that a request may have, prompt and answer."""
    flags: tuple[str, ...] = ()
    """More of SGLang's, for this model."""
    emulator_profile: str


def model_in(folder: Path) -> ServedModel:
    """A user's model. Raises: InvalidValueError for a folder that is none."""
    found = folder / "config.json"
    try:
        config = json.loads(found.read_text())
    except OSError:
        text = f"--model {folder}: allowed is the folder of a model, with a config.json; there is none"
        raise InvalidValueError("--model", text) from None
    except ValueError:
        raise InvalidValueError("--model", f"--model {folder}: its config.json is no JSON") from None
    text_config = config.get("text_config", {}) if isinstance(config, dict) else {}
    vocab = config.get("vocab_size", text_config.get("vocab_size")) if isinstance(config, dict) else None
    if not isinstance(vocab, int) or vocab < LEAST_VOCABULARY:
        text = f"--model {folder}: its config.json has no vocab_size of {LEAST_VOCABULARY} or more"
        raise InvalidValueError("--model", text)
    context = config.get("max_position_embeddings", text_config.get("max_position_embeddings"))
    weights = any(
        found for kind in ("*.safetensors", "*.bin", "*.pt", "*.gguf") for found in folder.glob(kind)
    )
    return ServedModel(
        name=folder.resolve().name,
        folder=folder.resolve(),
        vocab=vocab,
        context_tokens=context if isinstance(context, int) else CONTEXT_TOKENS,
        flags=() if weights else DUMMY,
        emulator_profile="",
    )


def emulated_model(profile: str) -> ServedModel:
    """The emulated engine's. Raises: ProfileError."""
    loaded = load_profile(profile)
    return ServedModel(
        name=loaded.model.name,
        folder=Path(),
        vocab=_EMULATED_VOCABULARY,
        context_tokens=min(loaded.model.max_context_tokens, loaded.kv_capacity_tokens),
        emulator_profile=profile,
    )
