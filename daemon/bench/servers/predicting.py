"""What arms with a policy are told to predict with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.profiling.document import from_json, read_bytes


def predictors(files: Mapping[str, Path], model: str) -> Predictors | None:
    """Predictors of a model's profile, or what measure.py wrote beside it; None without a file for the
    model."""
    if model not in files:
        return None
    data = read_bytes(files[model])
    try:
        return msgspec.json.decode(data, type=Predictors)
    except msgspec.ValidationError:
        return from_json(data, str(files[model])).predictors(1)
