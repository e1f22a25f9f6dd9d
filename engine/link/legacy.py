"""Measured profiles of format 1, with the names that fields have today.

Profiles of that format are in databases and in files that users keep. Only names differ from format 2.
"""

from __future__ import annotations

import msgspec

RENAMED_KEYS = {
    "beside_ratio": "colocated_ratio",
    "decode_beside_ratio": "decode_colocated_ratio",
    "decode_beside_sms_ratio": "decode_colocated_sms_ratio",
    "prefill_beside_ratio": "prefill_colocated_ratio",
    "per_longest_s": "per_max_context_s",
}
RENAMED_MODES = {"beside": "colocated"}
"""Of measured points."""


def with_new_names(data: bytes | str, **changes: object) -> bytes:
    """The same JSON with renamed fields; `changes` replace fields at its top, if that is an object.

    Raises: msgspec.DecodeError if it is not JSON.
    """
    renamed = _renamed(msgspec.json.decode(data))
    return msgspec.json.encode(renamed | changes if isinstance(renamed, dict) else renamed)


def _renamed(value: object) -> object:
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {RENAMED_KEYS.get(key, key): _renamed(each) for key, each in value.items()}
    mode = renamed.get("mode")
    if isinstance(mode, str):
        renamed["mode"] = RENAMED_MODES.get(mode, mode)
    return renamed
