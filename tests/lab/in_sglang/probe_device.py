"""What the engine's own streams, graphs and layer-wise launches cost, on an idle engine in its own process.

Device times come from events on the streams. The host queues work ahead of the device, so that what is
counted is the device's time; where launching outlasts computing it is the launching, as when serving.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

STEPS, REPEATS = (40, 5) if torch.cuda.is_available() else (4, 2)
"""Decode steps in a row, half of them on each group when they alternate, and how often: few without a GPU,
where their times say nothing and 2,400 of them outlasted the 240 s that a start may take on busy cores."""
CONTEXT_TOKENS = 512
BATCH_SIZES = (8, 64)
LAYERS_AT_ONCE = (1, 8)


def free_bytes() -> int:
    """Of the GPU's memory, as the driver says; 0 without a GPU."""
    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else 0


def activations(measurer: Any, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """What the largest prefill takes on the prefill stream of each group: each keeps memory of its own."""
    port, tokens = measurer._port, _largest(measurer, max(sizes))
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what the streams took at their start
    yield {"what": "memory", "of": "free when ready", "bytes": free_bytes()}
    for group in measurer._streams.groups:
        if not group.prefill_sms:
            continue
        before_bytes = free_bytes()
        measurer._use(lambda one, wanted=group: one is wanted)
        batch = measurer._batches.split_prefill([(tokens, 0)])
        measurer._seconds([measurer._layers(batch, port.state.layers, group.prefill)])
        port.forget_prefill_metadata()
        yield {
            "what": "memory",
            "of": "activations",
            "sms": group.prefill_sms,
            "tokens": tokens,
            "bytes": before_bytes - free_bytes(),
        }


def switches(measurer: Any, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Device time lost per switch: steps that alternate between two groups against steps that stay.

    `sizes` bounds the contexts, for a small model on a CPU.
    """
    groups, contexts = measurer._streams.groups, min(CONTEXT_TOKENS, max(sizes))
    middle = len(groups) // 2
    pairs = ((middle - 1, middle), (middle, len(groups) - 1))
    for bs in BATCH_SIZES:
        batch = measurer._batches.decode([contexts] * bs)
        for first, second in pairs:
            lost, host = [], []
            for _ in range(REPEATS):
                stayed = [_steps(measurer, batch, (index,))[0] for index in (first, second)]
                took_s, switched = _steps(measurer, batch, (first, second))
                lost.append((took_s - sum(stayed) / 2) / STEPS)
                host += switched
            yield {
                "what": "switch",
                "bs": bs,
                "groups": [[groups[i].prefill_sms, groups[i].decode_sms] for i in (first, second)],
                "lost_s": statistics.median(lost),
                "lost_worst_s": max(lost),
                "step_s": sum(stayed) / 2 / STEPS,
                "host_s": statistics.median(host),
            }


def _steps(measurer: Any, batch: Any, indices: Sequence[int]) -> tuple[float, list[float]]:
    """Device seconds of STEPS decode steps that take these groups in turn; host seconds of each change."""
    port, streams = measurer._port, measurer._streams
    port.use_group(indices[-1])
    begin = measurer._step(batch, streams.groups[indices[-1]].decode)[1]
    end, host = begin, []
    for number in range(STEPS):
        index = indices[number % len(indices)]
        if index != port.stream_group:
            began_s = time.perf_counter()
            port.use_group(index)
            host.append(time.perf_counter() - began_s)
        end = measurer._step(batch, streams.groups[index].decode)[1]
    streams.wait(end)
    return streams.elapsed_s(begin, end), host


def layerwise(measurer: Any, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A prefill in one launch per so many layers against the same prefill whole, alone on all SMs."""
    port, groups = measurer._port, measurer._streams.groups
    for wanted in sizes:
        tokens = _largest(measurer, wanted)
        port.use_group(len(groups) - 1)
        whole_s = _median(partial(_whole, measurer, tokens, groups[-1].decode))
        port.use_group(0)
        for layers in (*LAYERS_AT_ONCE, port.state.layers):
            took_s = _median(partial(_layered, measurer, tokens, layers, groups[0].prefill))
            yield {
                "what": "layerwise",
                "tokens": tokens,
                "layers_at_once": layers,
                "took_s": took_s,
                "whole_s": whole_s,
            }


def _median(once: Callable[[], float]) -> float:
    """After one run that does not count: kernels are chosen in it."""
    once()
    return statistics.median(once() for _ in range(REPEATS))


def _whole(measurer: Any, tokens: int, stream: Any) -> float:
    batch = measurer._batches.mixed([(tokens, 0)], ())
    return float(measurer._seconds([measurer._step(batch, stream)])[0])


def _layered(measurer: Any, tokens: int, layers: int, stream: Any) -> float:
    batch = measurer._batches.split_prefill([(tokens, 0)])
    left, spans = measurer._port.state.layers, []
    while left:
        spans.append(measurer._layers(batch, min(layers, left), stream))
        left -= min(layers, left)
    measurer._port.forget_prefill_metadata()
    return float(measurer._seconds([(spans[0][0], spans[-1][1])])[0])


def _largest(measurer: Any, tokens: int) -> int:
    """As many as the KV pool holds; a CPU's small one is asked for less."""
    capacity: int = measurer._port.state.kv_capacity_tokens // 2
    return min(tokens, capacity)
