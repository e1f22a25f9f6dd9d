"""Measuring on the real engine: the same streams, graphs and layer-wise launches that serving uses."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.api.types.device import Stream
from pdmuxd.engine.sglang.api.types.requests import Batch
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.colocated import ColocatedMeasurement, Span, shortest
from pdmuxd.engine.sglang.engine_info import Activations
from pdmuxd.engine.sglang.gauges import GpuReading, ReadGpu
from pdmuxd.engine.sglang.held import Held, HeldRuns, Launched
from pdmuxd.engine.sglang.internals.layerpauses import drop
from pdmuxd.engine.sglang.internals.probes import MODELS_OWN, ProbeBatches
from pdmuxd.engine.sglang.internals.scheduler import SchedulerPort
from pdmuxd.engine.sglang.internals.warming import Warming
from pdmuxd.engine.sglang.streams.base import LaunchStreams

_WARM_UP = 1
"""Runs before those that count: the first run chooses kernels and takes memory."""
_FUSED_LENGTHS, _FUSED_CONTEXTS = ((16, 0), (16, 16)), ((), (16,), (16,) * 4)
"""Two fused batches; running them compiles what every fused batch needs."""

_log = logging.getLogger(__name__)


class EngineMeasurer:
    """Carries out Measure messages on an idle scheduler.

    All ranks carry out each message at the same time and launch the same, since their batches sum with each
    other. What depends on the device's clock, rank 0 decides for all. If one rank alone runs out of memory,
    the others would wait for its sums for ever; so with several ranks that ends the engine.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        port: SchedulerPort,
        streams: LaunchStreams,
        table: PartitionTable,
        read_gpu: ReadGpu | None,
        *,
        can_split: bool,
    ) -> None:
        self._s = scheduler
        self._port = port
        self._streams = streams
        self._read_gpu = read_gpu
        self._can_split = can_split
        self._total_sms = table.rules.total_sms
        self._batches = ProbeBatches(scheduler)
        self._held: HeldRuns[Batch] = HeldRuns(
            streams, port.gather, read_gpu, is_one_gpu=port.state.tp_size == 1
        )
        self.activations: Activations | None = None
        """Of a prefill; None until the warm-up, and on a CPU."""

    def __call__(self, message: Measure) -> Measured:
        """Run one point; what went wrong is in the answer's `error`."""
        run = {
            "prefill": self._prefill,
            "decode": self._decode,
            "colocated": self._colocated,
            "fused": self._fused,
        }
        return self._answer(message.point_id, lambda: run[message.mode](message))

    def warm_up(self, tell: Callable[[str], None]) -> None:
        """Do before serving what is slow the first time: see `warming.py`; `tell` is told of each stream."""
        try:
            error = self._answer(0, lambda: self._warm_all(tell)).error
        except torch.OutOfMemoryError:
            raise
        except MODELS_OWN as problem:
            error = f"{type(problem).__name__}: {problem}"
        if error is not None:
            _log.warning("pdmuxd: the first prefills of each size may stop decode for a step: %s", error)

    def _answer(self, point_id: int, run: Callable[[], Measured]) -> Measured:
        """Run it on an empty cache, and leave the engine as it was."""
        group = self._port.stream_group
        try:
            self._batches.empty_cache()
            return run()
        except EngineError as error:
            return Measured(point_id=point_id, error=str(error))
        except torch.OutOfMemoryError:
            if self._port.state.tp_size > 1:
                raise
            torch.cuda.empty_cache()
            return Measured(point_id=point_id, error="the GPU's memory does not hold this batch")
        finally:
            self._port.use_group(group)
            self._port.forget_prefill_metadata()

    def _warm_all(self, tell: Callable[[str], None]) -> Measured:
        warming = Warming(
            self._streams,
            layers=self._port.state.layers,
            make=self._prefill_batch,
            launch=lambda *given: self._launch(*given)[1],
        )
        warming.take_pinned_memory()
        prefilling = [(i, group) for i, group in enumerate(self._streams.groups) if group.prefill_sms]
        for number, (index, group) in enumerate(prefilling if self._can_split else (), 1):
            self._port.use_group(index)
            tell(f"{number}/{len(prefilling)} ({group.prefill_sms} SMs)")
            warming.run(group.prefill)
            # The same prompts on all ranks, whose batches sum with each other.
            most_tokens = min(self._port.gather(warming.max_whole_tokens))
            warming.run_long(group.prefill, most_tokens)
        last = self._use(lambda g: g.decode_sms == self._total_sms)
        if not self._can_split:
            tell(f"fused ({last.decode_sms} SMs)")
            warming.run(last.decode)
        self.activations = warming.activations
        for contexts in _FUSED_CONTEXTS:
            batch = self._batches.mixed(_FUSED_LENGTHS, contexts)
            self._streams.wait(self._step(batch, last.decode)[1])
        self._port.activation_memory.bytes_per_token = warming.kept_bytes_per_token
        torch.cuda.empty_cache()
        return Measured(point_id=0)

    def _prefill_batch(self, lengths: Sequence[tuple[int, int]]) -> Batch:
        """The batch as serving forms it: by layers, or a step of prompt tokens alone."""
        return self._batches.split_prefill(lengths) if self._can_split else self._batches.mixed(lengths, ())

    def _prefill(self, message: Measure) -> Measured:
        if self._can_split:
            stream = self._use(lambda g: g.prefill_sms == message.prefill_sms).prefill
            return self._layered_prefill(message, stream)
        # A step of prompt tokens, on the stream that serves them.
        stream = self._use(lambda g: g.decode_sms == message.prefill_sms == self._total_sms).decode
        make = partial(self._batches.mixed, message.prefill, ())
        seconds, reading, held = self._in_one_launch(message, make, stream)
        return _told(message, reading, prefill_s=seconds, held=held)

    def _layered_prefill(self, message: Measure, stream: Stream) -> Measured:
        make = partial(self._batches.split_prefill, message.prefill)
        if message.warm_s:
            seconds, reading = self._sustained(
                message, make, lambda batch: self._layers(batch, self._port.state.layers, stream)
            )
            return _told(message, reading, prefill_s=seconds)
        held = self._held.run(
            stream, make, partial(self._all_layers, stream), repeats=message.repeats, in_a_row=False
        )
        return _told(message, held.reading, prefill_s=held.seconds, held=held)

    def _decode(self, message: Measure) -> Measured:
        stream = self._use(lambda g: g.decode_sms == message.decode_sms).decode
        batch = self._batches.decode(message.decode)
        ends = [self._step(batch, stream)[1] for _ in range(_WARM_UP + 1 + message.repeats)][_WARM_UP:]
        reading = self._reading()
        return _told(message, reading, decode_s=self._seconds(list(itertools.pairwise(ends))))

    def _fused(self, message: Measure) -> Measured:
        stream = self._use(lambda g: g.decode_sms == self._total_sms).decode
        make = partial(self._batches.mixed, message.prefill, message.decode)
        seconds, reading, held = self._in_one_launch(message, make, stream)
        return _told(message, reading, decode_s=seconds, held=held)

    def _in_one_launch(
        self, message: Measure, make: Callable[[], Batch], stream: Stream
    ) -> tuple[tuple[float, ...], GpuReading, Held | None]:
        if message.warm_s:
            return (*self._sustained(message, make, lambda batch: self._step(batch, stream)), None)

        def launch(batch: Batch) -> Launched:
            start, end = self._step(batch, stream)
            return Launched(start, start, end)

        held = self._held.run(stream, make, launch, repeats=message.repeats, in_a_row=True)
        return held.seconds, held.reading, held

    def _colocated(self, message: Measure) -> Measured:
        """Decode steps while prefills run one after the other; only steps with a prefill beside them from
        start to end count."""
        sms = (message.prefill_sms, message.decode_sms)
        if not self._can_split:
            raise EngineError("the model is not split, so nothing is prefilled beside decode")
        group = self._use(lambda g: (g.prefill_sms, g.decode_sms) == sms)
        decode = self._batches.decode(message.decode)
        self._step(decode, group.decode)
        colocated_step = ColocatedMeasurement(
            self._port,
            self._streams,
            step=lambda: self._step(decode, group.decode),
            layer=lambda batch: self._layers(batch, 1, group.prefill),
        )
        prefills = [
            colocated_step.run(self._batches.split_prefill(message.prefill, colocated_step=message.decode))
            for _ in range(message.repeats)
        ]
        inside = colocated_step.steps_within(prefills[0][0], prefills[-1][1])
        reading = self._reading()
        prefill_s = shortest(self._port.gather(self._seconds(prefills)))
        decode_s = shortest(self._port.gather(inside))
        return _told(message, reading, prefill_s=prefill_s, decode_s=decode_s)

    # --- launching

    def _sustained(
        self, message: Measure, make: Callable[[], Batch], launch: Callable[[Batch], Span]
    ) -> tuple[tuple[float, ...], GpuReading]:
        """Seconds of each repeat, which follow the warm-up and each other without a pause, and the clock."""
        counted = [make() for _ in range(message.repeats)]
        kept = [make()]
        warm = [launch(kept[0])]
        while message.warm_s:
            kept.append(make())
            warm.append(launch(kept[-1]))
            self._streams.wait(warm[-2][1])
            if self._port.agree(self._streams.elapsed_s(warm[0][0], warm[-2][1]) >= message.warm_s):
                break
        spans = [*warm, *(launch(batch) for batch in counted)]
        reading = self._reading()
        return self._seconds(spans)[len(warm) :], reading

    def _reading(self) -> GpuReading:
        """While the device is at work."""
        try:
            return self._read_gpu() if self._read_gpu is not None else GpuReading()
        except RuntimeError:
            return GpuReading()

    def _use(self, fits: Callable[[StreamGroup], bool]) -> StreamGroup:
        for index, group in enumerate(self._streams.groups):
            if fits(group):
                self._port.use_group(index)
                return group
        there = ", ".join(f"{g.prefill_sms},{g.decode_sms}" for g in self._streams.groups)
        raise EngineError(f"no partition group has these SMs; there are {there}")

    def _launch(self, batch: Batch, layers: int, stream: Stream) -> Span:
        """A prefill that does not go on; where nothing is split, all layers at once whatever is asked."""
        if not self._can_split:
            return self._step(batch, stream)
        span = self._layers(batch, layers, stream)
        drop(batch.split_forward_batch)
        return span

    def _layers(self, batch: Batch, layers: int, stream: Stream) -> Span:
        with self._streams.on(stream), self._port.collectives.in_force():
            stream.wait_stream(self._s.schedule_stream)
            start = self._streams.mark(stream)
            batch.split_forward_count = layers
            self._s.tp_worker.forward_batch_split_prefill(batch)
            batch.split_index += layers
            return start, self._streams.mark(stream)

    def _all_layers(self, stream: Stream, batch: Batch) -> Launched:
        before_last = self._port.state.layers - 1
        if not before_last:
            start, end = self._layers(batch, 1, stream)
            return Launched(start, start, end)
        start, last = self._layers(batch, before_last, stream)
        return Launched(start, last, self._layers(batch, 1, stream)[1])

    def _step(self, batch: Batch, stream: Stream) -> Span:
        with self._streams.on(stream):
            stream.wait_stream(self._s.schedule_stream)
            start = self._streams.mark(stream)
            self._s.tp_worker.forward_batch_generation(batch)
            return start, self._streams.mark(stream)

    def _seconds(self, spans: list[Span]) -> tuple[float, ...]:
        """Seconds of spans on one stream. Callers keep their batches until then: the device still reads their
        tensors, which belong to another stream."""
        if spans:
            self._streams.wait(spans[-1][1])
        return tuple(self._streams.elapsed_s(start, end) for start, end in spans)


def _told(
    message: Measure,
    reading: GpuReading,
    *,
    prefill_s: tuple[float, ...] = (),
    decode_s: tuple[float, ...] = (),
    held: Held | None = None,
) -> Measured:
    return Measured(
        point_id=message.point_id,
        prefill_s=prefill_s,
        decode_s=decode_s,
        launch_s=held.launch_s if held is not None else (),
        is_host_bound=held is not None and held.is_host_bound,
        gpu_clock_mhz=reading.clock_mhz,
        gpu_power_w=reading.power_w,
    )
