"""What is launched on a partition is made for its SMs: products and attention.

`CudaStreams.on` says on which partition launches go; the hooks on SGLang's products and attention
(`internals/partition_kernels.py`) ask here how to launch them. On all SMs nothing changes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pdmuxd.engine.sglang.streams.gemm import WHOLE_DEVICE, Gemm, GemmChoices, GemmInForce, Shape

_log = logging.getLogger(__name__)


class PartitionKernels:
    """The partition that launches go to, and the fastest kernels there."""

    def __init__(self, in_force: GemmInForce, total_sms: int) -> None:
        self._in_force = in_force
        self.total_sms = total_sms
        self.sms: int | None = None
        """Of the partition that is launched on; None outside of partitions."""
        self.choices = GemmChoices()
        self.attention = False
        """Whether attention is told of a partition's SMs."""

    @contextmanager
    def on(self, sms: int) -> Iterator[None]:
        """Launches inside go to a partition of `sms` SMs; with all SMs, to none."""
        before = self.enter(sms)
        try:
            yield
        finally:
            self.leave(before)

    def enter(self, sms: int) -> int | None:
        """Let launches go from now on to a partition of `sms` SMs; returns the SMs of the one before."""
        before = self.sms
        self.sms = sms if 0 < sms < self.total_sms else None
        return before

    def leave(self, before: int | None) -> None:
        """Go back to what `enter` returned."""
        self.sms = before

    @property
    def sm_margin(self) -> int:
        """The SMs of the device that the partition does not have; FlashAttention-3 is told of them."""
        return 0 if self.sms is None else self.total_sms - self.sms

    def fastest(self, shape: Shape, rows: int) -> Gemm:
        """How to launch a product here; as PyTorch would if nothing was timed."""
        if self.sms is None:
            return WHOLE_DEVICE
        return self.choices.fastest(self.sms, shape, rows) or WHOLE_DEVICE

    def put(self, gemm: Gemm) -> Gemm:
        """Launch products in this way from now on; returns the way before. The settings are the whole
        process's, so put it back."""
        before = self._in_force.in_force
        self._in_force.put(gemm)
        return before


def read_choices(path: Path, device: Mapping[str, str]) -> GemmChoices:
    """What an earlier start kept for this very device and software; nothing if there is none.

    A file that cannot be read costs a measurement, not the start.
    """
    try:
        document = json.loads(path.read_text())
        if document["device"] != dict(device):
            _log.info("pdmuxd: %s is of another device or PyTorch: products are timed again", path)
            return GemmChoices()
        return GemmChoices.from_json(document["fastest"])
    except FileNotFoundError:
        return GemmChoices()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("pdmuxd: %s cannot be used (%s): products are timed again", path, error)
        return GemmChoices()


def keep_choices(path: Path, device: Mapping[str, str], choices: GemmChoices) -> None:
    """Write them for the next start; a full disk costs the next start some seconds."""
    temporary = path.with_suffix(".new")
    try:
        temporary.write_text(json.dumps({"device": dict(device), "fastest": choices.to_json()}, indent=1))
        temporary.replace(path)
    except OSError as error:
        _log.warning("pdmuxd: the kernels that were chosen are not kept in %s: %s", path, error)
