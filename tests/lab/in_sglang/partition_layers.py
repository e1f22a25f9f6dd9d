"""Layers of a model on partitions: what a layout of streams gives, and what launching layers costs.

    python tests/lab partition-kernels overlay --out FOLDER
    python tests/lab partition-kernels prefill-graphs --out FOLDER

overlay         decode on a stream of all SMs with high priority, prefill capped to n SMs, against disjoint
                partitions: decode steps and prefill beside each other, all as graphs
prefill-graphs  layers of a prefill launched one by one, replayed one by one, and replayed as one graph

Each stops by itself before 90 s. Layers are products and PyTorch's own attention, with no norms and no
sampling, and Python launches fewer kernels for one than SGLang does: what launching costs there is more.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.streams.gemm import CUBLASLT, WHOLE_DEVICE, Gemm, GemmInForce, GemmUnsupportedError

HEAD_DIM = 128
WEIGHTS = 8
"""Layers with weights of their own, which together are larger than any cache; others use them again."""
LAYERS = 32
CAP_SMS = (64, 80, 96, 104, 112, 120)
DISJOINT_DECODE_SMS = (16, 24, 32, 40, 48)
DECODE_BATCHES = ((64, 1024), (128, 1024))
"""Requests and tokens of context."""
PREFILL_TOKENS = 2048
BESIDE_S = 0.7
"""For so long both run beside each other."""
GRAPH_SMS = (116, 100, 84)
GRAPH_TOKENS = (256, 512, 1024, 2048, 4096)
BUDGET_S = 75.0
"""Nothing is begun after this."""

_SURVIVED = (RuntimeError, AttributeError, TypeError, EngineError)
"""What a PyTorch or a driver says that lacks something; the row says it, and the next begins."""
Launch = Callable[[], None]
Split = Callable[[int], Any]
"""From SMs to a stream of so many."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a model's layers."""

    hidden: int
    qkv: int
    gate_up: int
    heads: int
    kv_heads: int

    @classmethod
    def of(cls, products: dict[str, tuple[int, int]]) -> Shape:
        """From a layer's products, (input, output) features by name."""
        hidden, qkv = products["qkv"]
        heads = hidden // HEAD_DIM
        return cls(hidden, qkv, products["gate_up"][1], heads, (qkv // HEAD_DIM - heads) // 2)


class Layers:
    """Layers with made-up weights, for batches of one kind at a time."""

    def __init__(self, shape: Shape, *, device: str = "cuda", weights: int = WEIGHTS) -> None:
        self.shape = shape
        self.device = device
        sizes = (
            (shape.qkv, shape.hidden),
            (shape.hidden, shape.hidden),
            (shape.gate_up, shape.hidden),
            (shape.hidden, shape.gate_up // 2),
        )
        self._weights = [[self._made(*size) * 0.02 for size in sizes] for _ in range(weights)]

    def _made(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, device=self.device, dtype=torch.bfloat16)

    def prefill(self, tokens: int) -> Callable[[int], None]:
        """Launches one layer of one prompt, by its number."""
        x = self._made(tokens, self.shape.hidden)
        s = self.shape

        def attend(qkv: torch.Tensor) -> torch.Tensor:
            q, k, v = _heads(qkv, s)
            out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return out.transpose(1, 2).reshape(tokens, s.hidden)

        return lambda layer: self._layer(layer, x, attend)

    def decode(self, bs: int, context: int) -> Callable[[int], None]:
        """Launches one layer of a decode batch whose contexts are in memory, by its number."""
        x, s = self._made(bs, self.shape.hidden), self.shape
        caches = [
            (self._made(bs, s.kv_heads, context, HEAD_DIM), self._made(bs, s.kv_heads, context, HEAD_DIM))
            for _ in range(len(self._weights))
        ]

        def step(layer: int) -> None:
            keys, values = caches[layer % len(caches)]

            def attend(qkv: torch.Tensor) -> torch.Tensor:
                # All heads that share KV are one product with it, as fast kernels have it.
                q = qkv[:, : s.hidden].view(bs, s.kv_heads, s.heads // s.kv_heads, HEAD_DIM)
                return scaled_dot_product_attention(q, keys, values).reshape(bs, s.hidden)

            self._layer(layer, x, attend)

        return step

    def _layer(self, number: int, x: torch.Tensor, attend: Callable[[torch.Tensor], torch.Tensor]) -> None:
        qkv, out, gate_up, down = self._weights[number % len(self._weights)]
        x = x + linear(attend(linear(x, qkv)), out)
        gate, up = linear(x, gate_up).chunk(2, dim=-1)
        linear(silu(gate) * up, down)


def _heads(qkv: torch.Tensor, s: Shape) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of one prompt: (1, heads, tokens, head size) each."""
    q, k, v = qkv.split((s.hidden, s.kv_heads * HEAD_DIM, s.kv_heads * HEAD_DIM), dim=-1)
    q, k, v = (part.view(1, len(qkv), -1, HEAD_DIM).transpose(1, 2) for part in (q, k, v))
    return q, k, v


class Ways:
    """Products told of a partition's SMs, where this PyTorch can be told."""

    def __init__(self, total_sms: int) -> None:
        self._total_sms = total_sms
        self._in_force: GemmInForce | None = None
        self.why_not = ""
        try:
            self._in_force = GemmInForce(total_sms)
        except GemmUnsupportedError as error:
            self.why_not = str(error)

    def of(self, sms: int) -> tuple[Gemm, ...]:
        """What is worth trying."""
        if self._in_force is None or sms >= self._total_sms:
            return (WHOLE_DEVICE,)
        return WHOLE_DEVICE, Gemm(CUBLASLT, sms if sms % 8 == 0 else sms - 12)

    def put(self, gemm: Gemm) -> None:
        """From now on."""
        if self._in_force is not None:
            self._in_force.put(gemm)


def captured(stream: Any, launch: Launch, pool: Any = None) -> torch.cuda.CUDAGraph:
    """After a run that chooses kernels; on one stream, so that its kernels are that partition's. Graphs that
    never run at a time may share the memory of a pool."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        launch()
    return graph


def timed(stream: Any, launch: Launch, times: int) -> tuple[Any, Any]:
    """Events around so many launches, none of them waited for."""
    with torch.cuda.stream(stream):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        for _ in range(times):
            launch()
        end.record(stream)
    return begin, end


def alone_ms(stream: Any, launch: Launch, times: int = 3) -> float:
    """Median of single launches."""
    took = []
    for _ in range(times + 1):
        begin, end = timed(stream, launch, 1)
        end.synchronize()
        took.append(float(begin.elapsed_time(end)))
    return statistics.median(took[1:])


def fastest(ways: Ways, sms: int, stream: Any, launch: Launch) -> tuple[torch.cuda.CUDAGraph, float, str]:
    """A graph by the faster way, its milliseconds alone, the way."""
    best: tuple[torch.cuda.CUDAGraph, float, str] | None = None
    for gemm in ways.of(sms):
        ways.put(gemm)
        try:
            graph = captured(stream, launch)
        finally:
            ways.put(WHOLE_DEVICE)
        took_ms = alone_ms(stream, graph.replay)
        if best is None or took_ms < best[1]:
            best = graph, took_ms, gemm.name
    if best is None:
        raise RuntimeError("there is no way to run products")
    return best


def beside_ms(
    decode: tuple[Any, Launch, float], prefill: tuple[Any, Launch, float], beside_s: float
) -> tuple[float, float]:
    """Milliseconds of a decode step and of a prefill while both run; of each a stream, a launch, and what it
    takes alone. The one that ends first leaves the other alone for the rest, so only its own span counts."""
    (d_stream, d_launch, d_ms), (p_stream, p_launch, p_ms) = decode, prefill
    steps, prefills = (max(2, int(1e3 * beside_s / ms)) for ms in (d_ms, p_ms))
    torch.cuda.synchronize()
    spans: list[tuple[list[Any], int]] = []
    for stream, launch, count in ((p_stream, p_launch, prefills), (d_stream, d_launch, steps)):
        with torch.cuda.stream(stream):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
            events[0].record(stream)
            for event in events[1:]:
                launch()
                event.record(stream)
        spans.append((events, count))
    torch.cuda.synchronize()
    (p_events, _), (d_events, _) = spans
    p_ends = [float(p_events[0].elapsed_time(event)) for event in p_events]
    d_ends = [float(p_events[0].elapsed_time(event)) for event in d_events]
    both_from, both_to = max(p_ends[0], d_ends[0]), min(p_ends[-1], d_ends[-1])
    return _typical(d_ends, both_from, both_to), _typical(p_ends, both_from, both_to)


def _typical(ends_ms: Sequence[float], begin_ms: float, end_ms: float) -> float:
    """Mean time between the ends that lie in a span; of all of them if fewer than two do."""
    inside = [end for end in ends_ms if begin_ms <= end <= end_ms]
    if len(inside) < 2:
        inside = list(ends_ms)
    return (inside[-1] - inside[0]) / (len(inside) - 1)


def overlay(
    shape: Shape, split: Split, total_sms: int, *, device: str = "cuda", layers: int = LAYERS
) -> Iterator[dict[str, Any]]:
    """A row for each layout and decode batch."""
    end_s = time.monotonic() + BUDGET_S
    model, ways = Layers(shape, device=device), Ways(total_sms)
    prefill_layer = model.prefill(PREFILL_TOKENS)
    high = torch.cuda.Stream(priority=-1)
    prefills: dict[int, tuple[Any, Launch, float]] = {}

    def all_layers(layer: Callable[[int], None]) -> Launch:
        def launch() -> None:
            for number in range(layers):
                layer(number)

        return launch

    def prefill_on(sms: int) -> tuple[Any, Launch, float]:
        if sms not in prefills:
            stream = split(sms)
            graph, took_ms, _ = fastest(ways, sms, stream, all_layers(prefill_layer))
            prefills[sms] = stream, graph.replay, took_ms
        return prefills[sms]

    layouts = [("overlay", sms, total_sms) for sms in CAP_SMS]
    layouts += [("disjoint", total_sms - sms, sms) for sms in DISJOINT_DECODE_SMS]
    for bs, context in DECODE_BATCHES:
        step = all_layers(model.decode(bs, context))
        for layout, prefill_sms, decode_sms in layouts:
            row: dict[str, Any] = {"layout": layout, "prefill_sms": prefill_sms, "decode_sms": decode_sms}
            row |= {"bs": bs, "context": context, "prefill_tokens": PREFILL_TOKENS}
            if time.monotonic() > end_s:
                yield row | {"error": "no time left"}
                continue
            try:
                prefill = prefill_on(prefill_sms)
                stream = high if layout == "overlay" else split(decode_sms)
                graph, d_ms, way = fastest(ways, decode_sms, stream, step)
                step_ms, prefill_ms = beside_ms((stream, graph.replay, d_ms), prefill, BESIDE_S)
            except _SURVIVED as error:
                yield row | {"error": str(error)[:120]}
                continue
            row |= {"way": way, "decode_alone_ms": d_ms, "prefill_alone_ms": prefill[2]}
            row |= {"decode_ms": step_ms, "prefill_ms": prefill_ms}
            yield row | {"prefill_tokens_per_s": 1e3 * PREFILL_TOKENS / prefill_ms}


def prefill_graphs(
    shape: Shape, split: Split, total_sms: int, *, device: str = "cuda", layers: int = LAYERS
) -> Iterator[dict[str, Any]]:
    """A row for each partition and number of tokens."""
    end_s = time.monotonic() + BUDGET_S
    model, ways = Layers(shape, device=device), Ways(total_sms)
    for sms in (total_sms, *GRAPH_SMS):
        stream = None
        for tokens in GRAPH_TOKENS:
            row: dict[str, Any] = {"sms": sms, "tokens": tokens, "layers": layers}
            if time.monotonic() > end_s:
                yield row | {"error": "no time left"}
                continue
            try:
                stream = stream or (torch.cuda.Stream() if sms == total_sms else split(sms))
                yield row | _graphed(model.prefill(tokens), stream, ways, sms, layers)
            except _SURVIVED as error:
                yield row | {"error": str(error)[:120]}


def _graphed(layer: Callable[[int], None], stream: Any, ways: Ways, sms: int, layers: int) -> dict[str, Any]:
    """Launched and replayed with the same kernels."""
    ways.put(ways.of(sms)[-1])
    try:
        taken_bytes = torch.cuda.memory_reserved()
        began_s = time.perf_counter()
        pool = torch.cuda.graph_pool_handle()
        each = [captured(stream, partial(layer, number), pool) for number in range(layers)]
        captured_s = time.perf_counter() - began_s
        taken_bytes = torch.cuda.memory_reserved() - taken_bytes

        def launched() -> None:
            for number in range(layers):
                layer(number)

        def replayed() -> None:
            for graph in each:
                graph.replay()

        whole = captured(stream, launched)
        ways_to_run = {"launched": launched, "replayed": replayed, "whole": whole.replay}
        found: dict[str, Any] = {"capture_s": captured_s, "graphs_bytes": taken_bytes}
        for name, launch in ways_to_run.items():
            found[f"{name}_ms"] = alone_ms(stream, launch, times=5)
            found[f"{name}_host_ms"] = _host_ms(stream, launch)
        return found
    finally:
        ways.put(WHOLE_DEVICE)


def _host_ms(stream: Any, launch: Launch) -> float:
    """Until the host has launched all of it, the device being idle."""
    took = []
    for _ in range(4):
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        with torch.cuda.stream(stream):
            launch()
        took.append(1e3 * (time.perf_counter() - began_s))
    return statistics.median(took[1:])


_OVERLAY = "layout prefill_sms decode_sms bs decode_alone_ms decode_ms prefill_alone_ms prefill_ms"
_GRAPHS = "sms tokens launched_ms replayed_ms whole_ms launched_host_ms replayed_host_ms whole_host_ms"
COLUMNS = {
    "overlay": (*_OVERLAY.split(), "prefill_tokens_per_s", "way"),
    "prefill-graphs": (*_GRAPHS.split(), "capture_s", "graphs_bytes"),
}


def table(what: str, rows: Sequence[dict[str, Any]]) -> str:
    """Markdown; a row that could not be measured says why."""
    columns = COLUMNS[what]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for row in rows:
        shown = [_shown(row.get(name)) for name in columns]
        if "error" in row:
            shown[-1] = str(row["error"])
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def as_json(row: dict[str, Any]) -> str:
    """One line."""
    return json.dumps({name: round(one, 4) if isinstance(one, float) else one for name, one in row.items()})
