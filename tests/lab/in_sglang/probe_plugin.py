"""A second plugin for SGLang, beside pdmuxd's own: measures inside a scheduler process of ours.

The experiment `micro` starts a server with it. Before the first request is served it runs `probe_device.py`
on the idle engine; while serving it times the loop's turns with `probe_turns.py`. What it finds goes to the
file that $PDMUXD_PROBE_OUT names, one JSON object a line. A probe that fails says so there, and the server
serves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OUT = "PDMUXD_PROBE_OUT"
SIZES = "PDMUXD_PROBE_SIZES"
"""Tokens of the prefills to measure, with commas between them."""
PLUGIN = "pdmuxd_probe"

_Probe = Callable[[Any, list[int]], Iterator[dict[str, Any]]]


def register() -> None:
    """Called by SGLang in each of its processes, before any stream or loop is made."""
    from pdmuxd.engine.loop.loop import EngineLoop
    from pdmuxd.engine.sglang.streams.cpu import CpuStreams
    from pdmuxd.engine.sglang.streams.cuda import CudaStreams

    for streams in (CpuStreams, CudaStreams):
        _watch_memory(streams)
    _measure_ahead(EngineLoop)


def _write(found: dict[str, Any]) -> None:
    with Path(os.environ[OUT]).open("a") as file:
        file.write(json.dumps(found) + "\n")


def _watch_memory(streams: Any) -> None:
    """What the green contexts and their streams take of the GPU."""
    from in_sglang.probe_device import free_bytes

    make = streams.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        before_bytes = free_bytes()
        make(self, *args, **kwargs)
        taken_bytes = before_bytes - free_bytes()
        _write({"what": "memory", "of": "contexts", "groups": len(self.groups), "bytes": taken_bytes})

    streams.__init__ = made


def _measure_ahead(loop: Any) -> None:
    """Probe before the loop runs, and let it run with its turns timed."""
    from in_sglang.probe_turns import TurnTimes

    make, run = loop.__init__, loop.run

    def made(self: Any, **kwargs: Any) -> None:
        timed = {name: kwargs[name] for name in ("port", "streams", "reporter", "policy_runtime")}
        self.probe_times = TurnTimes(**timed, write=_write)
        make(self, **kwargs, sleep=self.probe_times.sleep)
        self.probe_times.itemise(self)

    def measured(self: Any) -> None:
        from in_sglang.probe_device import activations, layerwise, switches

        measurer = self._reporter._measure
        sizes = [int(word) for word in os.environ[SIZES].split(",")]
        for probe in (activations, switches, layerwise):
            _try(probe, measurer, sizes)
        self.probe_times.attach(type(self))
        _write({"what": "ready"})
        run(self)

    loop.__init__, loop.run = made, measured


def _try(probe: _Probe, measurer: Any, sizes: list[int]) -> None:
    group = measurer._port.stream_group
    try:
        for found in probe(measurer, sizes):
            _write(found)
    except Exception as error:
        _write({"what": "failed", "probe": probe.__name__, "error": f"{type(error).__name__}: {error}"[:500]})
    finally:
        measurer._port.use_group(group)
        measurer._port.forget_prefill_metadata()
