"""Which kernels a launch takes, learned without the device doing any of its work.

A launch is captured into a graph that nobody replays, and its nodes name the kernels. Capturing takes the
host the time of a launch, so that thousands of shapes can be looked through in a second. Source: CUDA driver
API, "Graph Management" (12.0 and later, where a captured kernel has a handle of its own).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pdmuxd.engine.sglang.streams.driver import load_driver, value_of


class Kernels:
    """Sees the kernels of launches on one stream, which must be the current one. Raises: EngineError."""

    def __init__(self, stream: int, seen: set[int] | None = None) -> None:
        self._driver = load_driver()
        self._stream = self._driver.CUstream(stream)
        """CUstream, given as an integer."""
        self._seen: set[int] = set() if seen is None else seen

    def on(self, stream: int) -> Kernels:
        """Go on with launches on another stream."""
        return Kernels(stream, self._seen)

    def are_new(self, launch: Callable[[], object]) -> bool:
        """Whether a launch takes a kernel that no launch asked about before took."""
        found = self._taken_by(launch)
        is_new = not found <= self._seen
        self._seen |= found
        return is_new

    def load(self, launch: Callable[[int], object], counts: Iterable[int]) -> list[int]:
        """Launch one number of rows for each new kernel that these numbers take; which they were."""
        launched = []
        for count in counts:
            if self.are_new(partial(launch, count)):
                launch(count)
                launched.append(count)
        return launched

    @property
    def count(self) -> int:
        """Kernels seen so far."""
        return len(self._seen)

    def _taken_by(self, launch: Callable[[], object]) -> set[int]:
        driver = self._driver
        # Relaxed: what a first launch does besides launching, such as taking memory, is allowed.
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._ok("cuStreamBeginCapture", driver.cuStreamBeginCapture(self._stream, mode))
        try:
            launch()
        finally:
            graph = self._ok("cuStreamEndCapture", driver.cuStreamEndCapture(self._stream))
        try:
            _, count = self._ok("cuGraphGetNodes", driver.cuGraphGetNodes(graph, 0))
            nodes, _ = self._ok("cuGraphGetNodes", driver.cuGraphGetNodes(graph, count))
            return {self._kernel(node) for node in nodes if self._is_kernel(node)}
        finally:
            self._ok("cuGraphDestroy", driver.cuGraphDestroy(graph))

    def _is_kernel(self, node: Any) -> bool:
        kind = self._ok("cuGraphNodeGetType", self._driver.cuGraphNodeGetType(node))
        return bool(kind == self._driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL)

    def _kernel(self, node: Any) -> int:
        found = self._ok("cuGraphKernelNodeGetParams", self._driver.cuGraphKernelNodeGetParams(node))
        return int(found.kern) or int(found.func)

    def _ok(self, call: str, answer: tuple[Any, ...]) -> Any:
        return value_of(self._driver, call, answer)
