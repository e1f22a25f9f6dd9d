"""Prefill by layers of any model: its own `forward`, paused at the entry of a decoder layer.

A model's loop over its layers keeps what goes from one to the next in local variables (hidden states,
residuals, indices of experts). A loop written anew for a split has to know all of them, and SGLang's own for
Gemma 3 forgets one. Here the loop is the model's: it runs in a greenlet, which stops before the next layer
and goes on from there when the next layers are to be launched, on whatever stream is current then.
"""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.model import AttentionBackend, ModelRunner
from pdmuxd.engine.sglang.api.types.process import BoundaryLayout
from pdmuxd.engine.sglang.api.types.requests import ForwardBatch
from pdmuxd.engine.sglang.internals.slices import TokenSlice, called_in_slices, slices_of, wanted

_TOWERS = re.compile(
    r"(^|\.)(visual|vision|vit|audio|encoder|multi_modal|mm_|embed_vision|sam_model)", re.IGNORECASE
)
"""Parts of a model whose layers are not the text decoder's."""


def decoder_layers(model: torch.nn.Module, count: int) -> list[torch.nn.Module]:
    """The layers of the text decoder: of the lists of so many modules outside the towers, the outermost one
    whose members know their number. Empty if there is none."""
    lists = [
        (name, list(module))
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == count and not _TOWERS.search(name)
    ]
    if not lists:
        return []
    return min(lists, key=lambda one: (not _knows_its_number(one[1][0]), one[0].count(".")))[1]


def _knows_its_number(layer: torch.nn.Module) -> bool:
    return any(hasattr(module, "layer_id") for module in layer.modules())


class PausedForward:
    """One forward in mid-flight. All methods are for the thread that began it."""

    def __init__(
        self,
        pauses: LayerPauses,
        forward: Callable[[], object],
        batch: ForwardBatch,
        attention: AttentionBackend,
        slices: tuple[TokenSlice, ...] = (),
    ) -> None:
        """`slices`: in which each layer is called; none: whole."""
        self._pauses = pauses
        self._batch = batch
        self._slices = slices
        self._attention = attention
        self._greenlet = greenlet(forward)
        self._greenlet.gr_context = contextvars.copy_context()
        self._inside: _Ambient | None = None
        self._masks: dict[str, object] = {}
        self._until: float = 0
        self.calls = 0
        """Layers that were begun, or slices of them."""
        self.is_done = False
        self.result: object = None
        """What the forward returned."""

    def advance(self, until: float) -> None:
        """Run it until so many layers were called, or to its end. Raises: what the model raises."""
        if self.is_done or self.calls >= until:
            return
        self._until = until
        result = self._enter(self._greenlet.switch)
        if self.is_done:
            self.result = result

    def close(self) -> None:
        """Unwind it, so that each `with` and `finally` of the model ends."""
        if not self.is_done:
            self._enter(partial(self._greenlet.throw, GreenletExit))

    def before_layer(self) -> None:
        """Inside it, a layer is about to be called: back to `advance` if there were enough."""
        if self.calls >= self._until:
            self._greenlet.parent.switch()
        self.calls += 1

    @property
    def slices(self) -> int:
        """The number of slices in which each layer is called, 1 for whole layers."""
        return max(1, len(self._slices))

    def call(
        self, layer: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Inside it, a layer is called."""
        if self._slices:
            return called_in_slices(layer, self._batch, self._slices, self._before_slice, args, kwargs)
        self.before_layer()
        return layer(*args, **kwargs)

    def _before_slice(self, part: TokenSlice) -> None:
        self.before_layer()
        self._attention.init_forward_metadata(part.batch)

    def _enter(self, switch: Callable[[], object]) -> object:
        pauses = self._pauses
        if pauses.running is not None:
            raise EngineError("a model's forward pauses within another's")
        outside = _Ambient.taken()
        if self._inside is not None:
            self._inside.put()
        _put_masks(self._attention, self._masks)
        self._greenlet.parent = getcurrent()
        pauses.running = self
        try:
            return switch()
        finally:
            pauses.running = None
            self.is_done = self._greenlet.dead
            self._inside = _Ambient.taken()
            self._masks = _masks(self._attention)
            outside.put()


class LayerPauses:
    """The layers of one model, at whose entry a forward may pause. Nothing else of it changes: a layer that
    is called by anyone else asks one attribute more."""

    def __init__(self, layers: list[torch.nn.Module]) -> None:
        self.running: PausedForward | None = None
        self.calls = len(layers)
        """Of layers in the last forward: more than there are if a model goes through them several times."""
        for layer in layers:
            # The instance's own, which Nemotron-H calls by its name: PyTorch's hooks would miss that.
            layer.forward = self._pausing(layer.forward)

    def launch(self, runner: ModelRunner, batch: ForwardBatch, count: int) -> object:
        """Replaces SGLang's own: launches the next `count` layers of a batch, or slices of them; the logits
        come with the last."""
        if not batch.split_index:
            self._begin(runner, batch)
        forward = _paused(batch)
        if forward is None:
            raise EngineError("a prefill by layers goes on that was never begun")
        layers = runner.model_config.num_hidden_layers * forward.slices
        end = min(batch.split_index + count, layers)
        with as_extend(batch):
            calls = self.calls * forward.slices
            forward.advance(calls * end / layers if end < layers else float("inf"))
        batch.split_index = end
        if end < layers:
            return None
        _keep(batch, None)
        self.calls = forward.calls // forward.slices
        return forward.result

    def _begin(self, runner: ModelRunner, batch: ForwardBatch) -> None:
        drop(batch)
        with as_extend(batch):
            prepare = getattr(runner.model, "prepare_forward_batch", None)
            if prepare is not None:
                prepare(batch)
            attention, count = runner.attn_backend, wanted()
            attention.init_forward_metadata(batch)
            given = runner._extend_forward_kwargs(batch, None)
        call = partial(runner.model.forward, batch.input_ids, batch.positions, batch, **given)
        slices = slices_of(batch, count) if count > 1 else ()
        _keep(batch, PausedForward(self, call, batch, attention, slices))

    def _pausing(self, forward: Callable[..., object]) -> Callable[..., object]:
        def paused(*args: object, **kwargs: object) -> object:
            running = self.running
            return forward(*args, **kwargs) if running is None else running.call(forward, args, kwargs)

        return paused


def drop(batch: object) -> None:
    """End the forward of a batch that nobody waits for any more, if it has one."""
    forward = _paused(batch)
    if forward is not None:
        forward.close()
        _keep(batch, None)


@contextmanager
def as_extend(batch: ForwardBatch) -> Iterator[None]:
    """The mode that models and attention backends know: some do in it what they do not for SPLIT_PREFILL
    (attention to local chunks with FlashAttention-3, for one)."""
    modes = sglang().ForwardMode
    batch.forward_mode = modes.EXTEND
    try:
        yield
    finally:
        batch.forward_mode = modes.SPLIT_PREFILL


def ask_settings_once(layout: BoundaryLayout) -> None:
    """Keep what SGLang's settings say of context parallelism, which do not change once the model is loaded.

    In EXTEND, SGLang asks them four times a layer; in SPLIT_PREFILL it does not.
    """
    answer = layout._cp_gathers_over_attn_cp()
    layout._cp_gathers_over_attn_cp = lambda: answer


_MASKS = ("custom_mask", "mask_indptr", "image_token_ranges")
"""Fields of an attention backend's metadata that Gemma 3 and 4 set when a forward begins: a token of an image
attends to those behind it in the image. Metadata that are made anew after a pause know nothing of that."""


def _masks(attention: AttentionBackend) -> dict[str, object]:
    """The masks that are set."""
    told = _metadata(attention)
    found = {name: getattr(told, name, None) for name in _MASKS}
    return {name: value for name, value in found.items() if value is not None}


def _put_masks(attention: AttentionBackend, masks: dict[str, object]) -> None:
    told = _metadata(attention)
    for name, value in masks.items():
        setattr(told, name, value)


def _metadata(attention: AttentionBackend) -> object:
    backend = getattr(attention, "prefill_backend", attention)
    return getattr(backend, "forward_metadata", None)


_KEPT_AS = "pdmuxd_forward"


def _paused(batch: object) -> PausedForward | None:
    return cast("PausedForward | None", getattr(batch, _KEPT_AS, None))


def _keep(batch: object, forward: PausedForward | None) -> None:
    setattr(batch, _KEPT_AS, forward)


class _Ambient:
    """What a paused forward may have changed outside of itself, and others may change meanwhile: SGLang's
    flags of the forward under way, and PyTorch's mode of gradients.

    Context variables go with the greenlet by themselves. The current stream must not: the next layers may be
    for another partition.
    """

    __slots__ = ("_flags", "_grad")

    def __init__(self, flags: dict[str, Any], *, grad: bool) -> None:
        self._flags, self._grad = flags, grad

    @classmethod
    def taken(cls) -> _Ambient:
        return cls(dict(sglang().get_forward()._plain), grad=torch.is_grad_enabled())

    def put(self) -> None:
        sglang().get_forward()._plain.update(self._flags)
        if torch.is_grad_enabled() != self._grad:
            torch.set_grad_enabled(self._grad)
