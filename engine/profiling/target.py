"""The engine that is profiled: what may be asked of it, and what a profile of it is told apart by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.link.messages import Hello

KV_SHARE = 0.9
"""Of the KV pool, what a point may use: some of it is padding and blocks half full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An engine that measures, from its Hello."""

    hello: Hello
    model: ModelShape
    device: DeviceShape
    overheads: Overheads

    @classmethod
    def of(cls, hello: Hello) -> Target:
        """Raises: ProfileError if the engine does not say enough of itself, or cannot measure."""
        if not hello.can_measure:
            raise ProfileError(f"the engine {hello.engine} cannot measure")
        if hello.model_shape is None or hello.device_shape is None or hello.overheads is None:
            raise ProfileError(f"the engine {hello.engine} does not tell the shapes of its model and device")
        if hello.kv_capacity_tokens <= 0:
            raise ProfileError(f"the engine {hello.engine} tells no KV capacity")
        return cls(hello=hello, model=hello.model_shape, device=hello.device_shape, overheads=hello.overheads)

    @property
    def prior(self) -> RooflineModel:
        """What is believed before anything is measured: it sizes the points and their cost."""
        return RooflineModel(
            model=self.model,
            device=self.device,
            overheads=self.overheads,
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.hello.fused_tile_rows,
        )

    @property
    def tensor_parallel(self) -> TensorParallel:
        """The GPUs that are measured together; one as a rule."""
        return self.hello.tensor_parallel

    @property
    def splits(self) -> tuple[tuple[int, int], ...]:
        """Groups with SMs on both sides."""
        return tuple((p, d) for p, d in self.hello.partitions if p and d)

    @property
    def prefill_sizes(self) -> tuple[int, ...]:
        """SM counts that prefill may have, largest first."""
        return _distinct([self.hello.total_sms, *(p for p, _ in self.hello.partitions)])

    @property
    def decode_sizes(self) -> tuple[int, ...]:
        """SM counts that decode may have, largest first."""
        return _distinct([self.hello.total_sms, *(d for _, d in self.hello.partitions)])

    @property
    def kv_tokens(self) -> int:
        """KV tokens that a point may need."""
        return int(self.hello.kv_capacity_tokens * KV_SHARE)

    @property
    def max_new_tokens(self) -> int:
        """New tokens of the largest prefill to measure."""
        return min(self.hello.max_prefill_tokens, self.model.max_context_tokens, self.kv_tokens)


def _distinct(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({size for size in sizes if size > 0}, reverse=True))
