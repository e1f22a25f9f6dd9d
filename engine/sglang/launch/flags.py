"""Which of SGLang's own flags a user may add, and which would break multiplexing.

Pure text, so that the daemon can refuse a flag before it starts anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.slo import TENANT_NAME

_OURS = "pdmuxd sets it"
_ONE_STAGE = "multiplexing needs all layers on one GPU group"
_APART = "multiplexing runs prefill and decode in one engine"
_ELSEWHERE = "SGLang's prefill by layers does not wait for KV that comes back from elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A field of SGLang's arguments that must keep one of the `harmless` values."""

    why: str
    harmless: tuple[object, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other flags for the field than its name with hyphens."""


REFUSED: Mapping[str, Refusal] = {
    "model_path": Refusal(why=_OURS, aliases=("--model",)),
    "served_model_name": Refusal(why=_OURS),
    "host": Refusal(why=_OURS),
    "port": Refusal(why=_OURS),
    "tp_size": Refusal(why=_OURS, aliases=("--tp", "--tensor-parallel-size")),
    "api_key": Refusal(why=_OURS),
    "admin_api_key": Refusal(why="the engine has one key, which pdmuxd makes", harmless=(None,)),
    "enable_pdmux": Refusal(why=_OURS),
    "pdmux_config_path": Refusal(why=_OURS),
    "sm_group_num": Refusal(why=_OURS),
    "chunked_prefill_size": Refusal(why="the policy decides it at each step"),
    "disable_overlap_schedule": Refusal(why=_OURS),
    "enable_mixed_chunk": Refusal(why="the policy decides it at each step", harmless=(False,)),
    "enable_dynamic_chunking": Refusal(why="the policy decides it at each step", harmless=(False,)),
    "config": Refusal(why="its flags could not be checked; give them one by one"),
    "enable_lora": Refusal(why="--lora-paths TENANT=FOLDER ... sets it", harmless=(None, False, True)),
    "max_loras_per_batch": Refusal(why=_OURS),
    "enable_lora_overlap_loading": Refusal(
        why="all adapters are loaded at the start", harmless=(None, False)
    ),
    "pp_size": Refusal(why=_ONE_STAGE, harmless=(1,), aliases=("--pp", "--pipeline-parallel-size")),
    "dp_size": Refusal(
        why="one engine is one replica; run one daemon for each",
        harmless=(1,),
        aliases=("--dp", "--data-parallel-size"),
    ),
    "enable_dp_attention": Refusal(why="one engine is one replica", harmless=(False,)),
    "nnodes": Refusal(why="one daemon is one node", harmless=(1,)),
    "disaggregation_mode": Refusal(why=_APART, harmless=("null",)),
    "encoder_only": Refusal(why=_APART, harmless=(False,)),
    "speculative_algorithm": Refusal(why="SGLang cannot multiplex with speculation", harmless=(None,)),
    "enable_two_batch_overlap": Refusal(why="both want to share the GPU's SMs", harmless=(False,)),
    "enable_single_batch_overlap": Refusal(why="both want to share the GPU's SMs", harmless=(False,)),
    "enable_hierarchical_cache": Refusal(why=_ELSEWHERE, harmless=(False,)),
    "enable_lmcache": Refusal(why=_ELSEWHERE, harmless=(False,)),
    "enable_flexkv": Refusal(why=_ELSEWHERE, harmless=(False,)),
    "enable_unified_cache_external_linker": Refusal(why=_ELSEWHERE, harmless=(False,)),
    "enable_hisparse": Refusal(why=_ELSEWHERE, harmless=(False,)),
    "enable_unified_memory": Refusal(
        why="it moves KV that a prefill by layers still writes", harmless=(False,)
    ),
    "is_embedding": Refusal(why="an embedding model decodes nothing", harmless=(False,)),
    "dllm_algorithm": Refusal(why="a diffusion model has no decode steps", harmless=(None,)),
    "grpc_mode": Refusal(why="pdmuxd speaks HTTP with its engine", harmless=(False,)),
    "smg_grpc_mode": Refusal(why="pdmuxd speaks HTTP with its engine", harmless=(False,)),
    "use_ray": Refusal(why="pdmuxd starts the engine itself", harmless=(False,)),
    "tokenizer_worker_num": Refusal(why="with several, SGLang takes no API key", harmless=(1,)),
}


def split_extra(text: str) -> tuple[str, ...]:
    """The words of `--flag value ...` as a shell would split them. Raises: SettingsError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise SettingsError(f"SGLang's flags cannot be split into words: {error}") from error
    check_extra(words)
    return words


def check_extra(words: Sequence[str]) -> None:
    """Refuse flags that are pdmuxd's own or break multiplexing. Raises: SettingsError naming the flag.

    Looks at the words alone: what SGLang takes an abbreviation for shows only in `check_parsed`.
    """
    adapters(words)
    if words and not words[0].startswith("--"):
        raise SettingsError(f"{words[0]!r} is not a flag; SGLang's flags start with --")
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        field = _FIELDS.get(flag)
        if field is None:
            continue
        follows = words[number + 1 : number + 2]
        given = value if equals else (follows[0] if follows and not follows[0].startswith("--") else "")
        if given not in [str(value) for value in REFUSED[field].harmless if value not in (None, False)]:
            raise SettingsError(_sentence(flag, REFUSED[field]))


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """What follows a flag, the last time that it is given; None if it is not."""
    found = None
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag:
            found = value if equals else next(iter(words[number + 1 : number + 2]), "")
    return found


ADAPTERS = "--lora-paths"
_SHORTEST = "--lora-p"
"""SGLang's parser takes it for ADAPTERS."""


def adapters(words: Sequence[str]) -> dict[str, str]:
    """Each tenant's folder, by `--lora-paths TENANT=FOLDER ...`. Raises: SettingsError."""
    found: dict[str, str] = {}
    flag, times = "", 0
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("--") else (flag, "", word)
        if ADAPTERS.startswith(flag) and flag.startswith(_SHORTEST) and flag != ADAPTERS:
            raise SettingsError(f"SGLang's flag {flag} is not allowed: write {ADAPTERS}")
        if flag != ADAPTERS:
            continue
        if word.startswith("--"):
            times += 1
            if times > 1:
                raise SettingsError(
                    f"SGLang's flag {ADAPTERS} is given twice, and SGLang takes the last: name all adapters "
                    "behind one"
                )
            if not equals:
                continue
        tenant, equals, folder = value.partition("=")
        if not (re.fullmatch(TENANT_NAME, tenant) and folder) or tenant in found:
            raise SettingsError(
                f"SGLang's flag {ADAPTERS}: {value[:80]!r} is not allowed; give each tenant's adapter once, "
                "as TENANT=FOLDER"
            )
        found[tenant] = folder
    return found


def check_parsed(values: Mapping[str, object]) -> None:
    """Refuse what SGLang's parser made of all flags: the fields CHECKED. Raises: SettingsError."""
    for field, refusal in REFUSED.items():
        if refusal.harmless and values[field] not in refusal.harmless:
            raise SettingsError(_sentence(_flag(field), refusal))


def _sentence(flag: str, refusal: Refusal) -> str:
    return f"SGLang's flag {flag} is not allowed here: {refusal.why}"


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


CHECKED = tuple(field for field, refusal in REFUSED.items() if refusal.harmless)
"""Fields of SGLang's parsed arguments that an abbreviated flag could have changed."""
_FIELDS = {flag: field for field, refusal in REFUSED.items() for flag in (_flag(field), *refusal.aliases)}
