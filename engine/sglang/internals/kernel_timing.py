"""How long each way to run a product takes on each partition: captured graphs of a few layers."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, cast

import torch

from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Stream, Tensor
from pdmuxd.engine.sglang.api.types.model import LoadedLinear
from pdmuxd.engine.sglang.streams.gemm import Gemm, Shape, candidates, missing
from pdmuxd.engine.sglang.streams.gemm_timing import layers_to_time, typical_s
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

PREFILL_ROWS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
DECODE_ROWS = (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)

_log = logging.getLogger(__name__)


class KernelTiming:
    """Times the kernels of one model's products."""

    def __init__(self, kernels: PartitionKernels, model: Any) -> None:
        self._kernels = kernels
        self._products, self._head = products_of(model)

    def run(self, groups: Sequence[StreamGroup], max_decode_rows: int) -> None:
        """Time what was not timed before, and keep the fastest. Raises: RuntimeError."""
        sides: list[tuple[int, Stream, tuple[int, ...]]] = []
        decode_rows = tuple(rows for rows in DECODE_ROWS if rows <= max_decode_rows) or DECODE_ROWS[:1]
        for group in groups:
            if group.prefill_sms and group.decode_sms:
                sides.append((group.prefill_sms, group.prefill, PREFILL_ROWS))
                sides.append((group.decode_sms, group.decode, decode_rows))
        for sms, stream, all_rows in sides:
            points = [
                (shape, rows)
                for _, shape, rows in missing(self._kernels.choices, [(sms, all_rows)], self._products)
                if shape != self._head or rows <= DECODE_ROWS[-1]  # which has a row per request
            ]
            if not points:
                continue
            _log.info("pdmuxd: timing %d products on %d SMs", len(points), sms)
            for shape, rows in points:
                fastest = self._fastest(sms, stream, shape, rows)
                if fastest is not None:
                    self._kernels.choices.keep(sms, shape, rows, fastest)

    def _fastest(self, sms: int, stream: Stream, shape: Shape, rows: int) -> Gemm | None:
        """None if nothing can run there."""
        fastest, best_s = None, math.inf
        for gemm in candidates(sms):
            took_s = self._time_s(stream, gemm, shape, rows, best_s=best_s)
            if took_s is not None and took_s < best_s:
                fastest, best_s = gemm, took_s
        return fastest

    def _time_s(self, stream: Stream, gemm: Gemm, shape: Shape, rows: int, *, best_s: float) -> float | None:
        """Seconds of a graph, by `typical_s`; None for what cannot run on the partition."""
        weights = self._products[shape]
        weights = weights[: layers_to_time(rows, weights[0].nbytes)]
        before = self._kernels.put(gemm)
        try:
            with torch.cuda.stream(stream):
                x = torch.randn(rows, shape[1], dtype=weights[0].dtype, device=weights[0].device)
                # Memory that a graph takes is its own, and freed late.
                out = torch.empty(rows, shape[0], dtype=x.dtype, device=x.device)
                launch = partial(_multiply_all, x, weights, out)
                launch()
                stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(capture_error_mode="relaxed")
                try:
                    launch()
                finally:
                    graph.capture_end()
            self._replay_s(graph, stream)
            return typical_s(lambda: self._replay_s(graph, stream), best_s=best_s)
        except RuntimeError as error:
            _log.warning("pdmuxd: %s with %d rows of %s on a partition: %s", gemm.name, rows, shape, error)
            return None
        finally:
            self._kernels.put(before)

    @staticmethod
    def _replay_s(graph: Any, stream: Stream) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            start.record(stream)
            graph.replay()
            end.record(stream)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000.0


def _multiply_all(x: Tensor, weights: Iterable[Tensor], out: Tensor) -> None:
    for weight in weights:
        torch.mm(x, weight.t(), out=out)


def products_of(model: Any) -> tuple[dict[Shape, list[Tensor]], Shape | None]:
    """The weights that `launch_product` and `launch_head` multiply by, by shape; and the head's shape."""
    found: dict[Shape, list[Tensor]] = {}
    api = sglang()
    for module in model.modules():
        if isinstance(module, api.Linear) and isinstance(module.quant_method, api.UnquantizedLinear):
            weight = cast(LoadedLinear, module).weight
            found.setdefault((weight.shape[0], weight.shape[1]), []).append(weight.data)
    head = getattr(getattr(model, "lm_head", None), "weight", None)
    if head is None or head.dtype not in (torch.bfloat16, torch.float16):
        return found, None
    shape = (head.shape[0], head.shape[1])
    found.setdefault(shape, []).append(head.data)
    return found, shape
