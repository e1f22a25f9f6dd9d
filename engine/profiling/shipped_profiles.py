"""Profiles that pdmuxd brings along: what is predicted with until one was measured where it runs.

A roofline of data sheets is off by half and more where it matters most, decode on few SMs; another host's GPU
of the same kind differs by 4 to 8% (docs/decisions/0030-a-shipped-profile-stands-in.md).
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources

import msgspec

from pdmuxd.engine.core.shapes import ModelShape
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.document import MeasuredProfile, from_json

MAX_VOCAB_DIFFERENCE = 0.01
"""Fine-tuned models add a few tokens to the vocabulary, which is read once a step."""


def shipped_profiles() -> Iterator[MeasuredProfile]:
    """All of them, without samples."""
    folder = resources.files("pdmuxd.engine.profiling") / "shipped"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        yield from_json(gzip.decompress(file.read_bytes()), file.name)


def shipped_for(hello: Hello) -> MeasuredProfile | None:
    """The profile of the engine's GPU and of a model of its shape, as one of its very model; None if there is
    none, or if the engine's steps are other than the shapes tell."""
    if hello.variant or hello.model_shape is None:
        return None
    used = {sms for group in hello.partitions for sms in group if sms}
    for profile in shipped_profiles():
        if (
            profile.provenance.device == hello.device
            and profile.total_sms == hello.total_sms
            and profile.tensor_parallel.gpus == hello.tensor_parallel.gpus
            and _is_alike(profile.model, hello.model_shape)
            and used <= {fit.sms for fit in profile.solo_run}
        ):
            told = msgspec.structs.replace(profile.provenance, model_hash=hello.model_hash)
            return msgspec.structs.replace(profile, provenance=told)
    return None


def _is_alike(measured: ModelShape, served: ModelShape) -> bool:
    """Whether layers are the same; names and the longest context do not matter."""
    if abs(measured.vocab - served.vocab) > MAX_VOCAB_DIFFERENCE * measured.vocab:
        return False
    return (
        replace(
            served,
            name=measured.name,
            vocab=measured.vocab,
            max_context_tokens=measured.max_context_tokens,
        )
        == measured
    )
