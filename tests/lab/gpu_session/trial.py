"""The same session without a GPU: each step's arguments for SGLang's CPU path, or for the emulated engine."""

from __future__ import annotations

from dataclasses import replace

from gpu_session.step import Lane, Need, Step

_CPU = {
    "micro": ("--prefill-tokens", "64,256", "--cell", "conv:1"),
    "slo-change": ("--rate", "1", "--input-tokens", "64", "--output-tokens", "64", "--edits", "3"),
    "measure": (),
    "two-gpus": ("--cell", "conv:1", "--change-s", "2"),
    "flood": ("--calm", "chat:2", "--flood", "chat:6"),
    "token-path": ("--streams", "2,4"),
    "matrix": ("--as-model", "tiny", "--only-arms", "ours:auto,stock", "--only-cells", "conv:1"),
}
_EMULATOR = {
    "slo-change": ("--engine", "emulator", "--edits", "3"),
    "measure": ("--arm", "emulator:auto"),
    "two-gpus": ("--engine", "emulator", "--cell", "conv:5", "--change-s", "0.5"),
    "flood": ("--engine", "emulator"),
    "token-path": ("--engine", "emulator", "--streams", "8,16"),
    "matrix": ("--only-arms", "emulator:auto,emulator:muxwise", "--only-cells", "conv:5", "--cpu"),
}


def tried(found: tuple[Lane, ...], engine: str) -> tuple[Lane, ...]:
    """The lanes as they are tried; on a GPU as they are. Steps that the engine cannot do are left out."""
    if engine == "gpu":
        return found
    words = _CPU if engine == "cpu" else _EMULATOR
    return tuple(
        replace(lane, steps=tuple(_step(step, engine, words) for step in lane.steps if step.plan in words))
        for lane in found
    )


def _step(step: Step, engine: str, words: dict[str, tuple[str, ...]]) -> Step:
    absent = {Need.GPU} if engine == "cpu" else {Need.GPU, Need.SGLANG}
    own = (*step.words, *words[step.plan])
    if engine == "cpu":
        own = (*_with_tiny(own), "--cpu")
    return replace(step, words=own, needs=tuple(need for need in step.needs if need not in absent))


def _with_tiny(words: tuple[str, ...]) -> tuple[str, ...]:
    at = words.index("--model") + 1 if "--model" in words else 0
    return (*words[:at], "tiny", *words[at + 1 :]) if at else words
