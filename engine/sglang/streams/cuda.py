"""The streams of all partition groups on a GPU."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from types import TracebackType

import torch

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.api.types.device import Event, Stream
from pdmuxd.engine.sglang.streams.green import GreenStream, split_device
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

_FASTEST_HZ = 2.1e9
"""No SM of the GPUs that can be split has a faster clock (GB200's boost: 2,062 MHz): a hold counted in its
cycles lasts no less than asked."""
_SIDE = 4096
"""Rows and columns of the products that keep the device at work: 0.2 ms of an H100 each, 96 MiB of memory."""
_PRODUCTS = 800
"""At most in one hold: a stream takes about a thousand launches ahead of the device."""
_SAMPLE = 20
"""Products that are timed to know how many a hold needs."""


class CudaStreams:
    """Implements LaunchStreams. The first and the last group use ordinary streams on all SMs.

    Raises: EngineError if a split cannot be made.
    """

    def __init__(self, table: PartitionTable, gpu: int, kernels: PartitionKernels | None = None) -> None:
        self._gpu = gpu
        self._kernels = kernels
        self._sms: dict[int, int] = {}
        """By the handle of each partition's stream."""
        self._contexts: list[GreenStream] = []
        groups: list[StreamGroup] = []
        for group in table.groups:
            if group.prefill_sms and group.decode_sms:
                prefill, decode = split_device(
                    gpu, group.prefill_sms, group.decode_sms, multiple_sms=table.rules.multiple_sms
                )
                self._contexts += [prefill, decode]
                groups.append(
                    StreamGroup(
                        prefill_sms=prefill.sms,
                        decode_sms=decode.sms,
                        prefill=self._torch_stream(prefill),
                        decode=self._torch_stream(decode),
                    )
                )
            else:
                groups.append(
                    StreamGroup(
                        prefill_sms=group.prefill_sms,
                        decode_sms=group.decode_sms,
                        prefill=torch.cuda.Stream(gpu),
                        decode=torch.cuda.Stream(gpu),
                    )
                )
        self.groups = tuple(groups)
        self._whole: Stream = groups[-1].decode
        """Of all SMs."""
        self._product_s: float | None = None

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Sets the stream as torch.cuda.stream does; on a partition's stream launches are made for its
        SMs."""
        sms = self._sms.get(stream.cuda_stream)
        context: AbstractContextManager[object] = torch.cuda.stream(stream)
        if self._kernels is None or sms is None:
            return context
        return _OnPartition(context, self._kernels, sms)

    def hold(self, stream: Stream, seconds: float, *, is_at_work: bool) -> bool:
        """Launch matrix products if it is at work, and for what they do not fill a kernel of one thread that
        counts cycles."""
        if is_at_work:
            if self._product_s is None:
                self._product_s = self._seconds_of_a_product()
            products = min(_PRODUCTS, math.ceil(seconds / self._product_s))
            self._multiply(products)
            stream.wait_stream(self._whole)
            seconds -= products * self._product_s
        if seconds > 0.0:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(int(seconds * _FASTEST_HZ))  # noqa: SLF001 - there is no public one
        return True

    def _multiply(self, products: int) -> tuple[Event, Event]:
        """Launch so many on all SMs, between two events."""
        with torch.cuda.stream(self._whole):
            one, other = (
                torch.randn(_SIDE, _SIDE, dtype=torch.bfloat16, device=f"cuda:{self._gpu}") for _ in range(2)
            )
            out = torch.mm(one, other)
            start = self.mark(self._whole)
            for _ in range(products):
                torch.mm(one, other, out=out)
            return start, self.mark(self._whole)

    def _seconds_of_a_product(self) -> float:
        """Time some on a device that has rested, whose clock is as fast as it gets."""
        start, end = self._multiply(_SAMPLE)
        self.wait(end)
        return self.elapsed_s(start, end) / _SAMPLE

    def mark(self, stream: Stream) -> Event:
        """A timing event: 0.5 microseconds dearer than one without."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def is_done(self, event: Event) -> bool:
        """cudaEventQuery."""
        return bool(event.query())

    def wait(self, event: Event) -> None:
        """cudaEventSynchronize."""
        event.synchronize()

    def elapsed_s(self, start: Event, end: Event) -> float:
        """CUDA measures in milliseconds."""
        return float(start.elapsed_time(end)) / 1000.0

    def order(self, later: Stream, earlier: Stream) -> None:
        """Order them through an event; the host does not wait."""
        later.wait_stream(earlier)

    def order_after(self, later: Stream, event: Event) -> None:
        """cudaStreamWaitEvent."""
        later.wait_event(event)

    def _torch_stream(self, green: GreenStream) -> Stream:
        self._sms[green.handle] = green.sms
        return torch.cuda.ExternalStream(green.handle, device=f"cuda:{self._gpu}")


class _OnPartition:
    """Both contexts; may be entered again, as torch.cuda.stream may."""

    def __init__(self, stream: AbstractContextManager[object], kernels: PartitionKernels, sms: int) -> None:
        self._stream = stream
        self._kernels = kernels
        self._sms = sms
        self._before: int | None = None

    def __enter__(self) -> None:
        self._before = self._kernels.enter(self._sms)
        self._stream.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.__exit__(kind, error, trace)
        self._kernels.leave(self._before)
