"""Whether the model that was loaded can be prefilled by layers: told by its parts, and then by a prompt.

A prompt is prefilled whole and by layers, and the logits are compared. They are equal if the model's own
forward calls the layers one after the other, and nothing that a pause disturbs is kept between them.
"""

from __future__ import annotations

import logging
import math

import torch

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.api.types.model import ModelRunner
from pdmuxd.engine.sglang.api.types.requests import Batch, ForwardBatch
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.internals.describe import fused_graph_tokens
from pdmuxd.engine.sglang.internals.images import masks_images
from pdmuxd.engine.sglang.internals.layerpauses import (
    LayerPauses,
    ask_settings_once,
    decoder_layers,
    drop,
)
from pdmuxd.engine.sglang.internals.marlin_locks import keep_apart, marlin_layers, why_shared
from pdmuxd.engine.sglang.internals.probes import MODELS_OWN, ProbeBatches, has_state_slots
from pdmuxd.engine.sglang.internals.scheduler import SchedulerPort
from pdmuxd.engine.sglang.internals.shared_state import shared_by_streams
from pdmuxd.engine.sglang.internals.slices import cut_into
from pdmuxd.engine.sglang.internals.watching import Watch
from pdmuxd.engine.sglang.launch.mode import MARLIN
from pdmuxd.engine.sglang.streams.base import LaunchStreams

_log = logging.getLogger(__name__)

ROUNDINGS = 16
"""Logits may differ by so many roundings of the weights' type, over their standard deviation. The kernels are
the same, so that what differs is the order of sums that are made atomically."""
SLICED_ROUNDINGS, SLICED_APART = 128, 0.25
"""The same for layers in slices, where sums over a prompt's tokens have other parts, as in chunks of it: 55
roundings for a tiny model of 16 layers in float32. A residual that is lost is over one deviation."""
_LENGTHS = (90, 37)
"""Tokens of two requests. Where steps of so few are replayed as graphs, the first is longer than any of them,
so that both ways take the same kernels."""
_LONGEST = 200
"""Letters of such an error."""


class Splitting:
    """Makes the forwards of one model pause, and tries that."""

    def __init__(
        self, scheduler: Scheduler, port: SchedulerPort, streams: LaunchStreams, *, splits_marlin: bool
    ) -> None:
        """`splits_marlin`: prefill is given locks of its own where the layers' products are Marlin's."""
        self._s = scheduler
        self._splits_marlin = splits_marlin
        self._port = port
        self._streams = streams
        self._layers = port.state.layers
        self.pauses: LayerPauses | None = None
        """None where nothing pauses."""
        self.can_slice = False
        """Whether its layers can be called for some tokens of a prompt after the others."""

    def prepare(self) -> str:
        """Why the model cannot be split; empty if it can."""
        why = self._without_trying()
        if not why:
            ask_settings_once(sglang().boundary_layout)
            captured = max(fused_graph_tokens(self._s.tp_worker.model_runner), default=0)
            # Every rank tries, since their batches sum with each other; the first one says what it came to.
            lengths = (max(_LENGTHS[0], captured + 1), _LENGTHS[1])
            why = str(self._port.agree(self._tried(lengths))) or str(self._port.agree(self._shared()))
            said = "it is not split" if why else self._uncut(lengths[:1])
            self.can_slice = not said
            if said:
                _log.info("pdmuxd: the layers of long prompts are not cut by tokens: %s", said)
        if not why and self.pauses is not None:
            _log.info("pdmuxd: prefills pause between the model's %d layers", self.pauses.calls)
        return why

    def _uncut(self, lengths: tuple[int, ...]) -> str:
        """Why layers cannot be called for some tokens after the others; empty if they can."""
        if masks_images(self._s.tp_worker.model_runner.model):
            return "a token of an image attends to those behind it"
        return str(self._port.agree(self._tried(lengths, slices=3)))

    def _without_trying(self) -> str:
        model = self._s.tp_worker.model_runner.model
        name = type(model).__name__
        if has_state_slots(self._s):
            return f"{name} keeps a state of each request besides its KV, which cannot be set aside yet"
        if self._s.model_config.is_encoder_decoder:
            return f"{name} has an encoder"
        marlins = marlin_layers(model)
        if marlins:
            why = why_shared(model, marlins, self._streams.groups) if self._splits_marlin else MARLIN
            if why:
                return why
        shared = shared_by_streams(
            model,
            self._s.server_args,
            attention=self._attention(),
            tp_size=self._port.state.tp_size,
            decodes_own={id(layer.locks) for layer in marlins},
        )
        if shared:
            return shared
        layers = decoder_layers(model, self._layers)
        if not layers:
            return f"{name} has no list of {self._layers} decoder layers"
        pauses = self.pauses = LayerPauses(layers)
        if marlins:
            # Graphs of decode were captured before, with the layers' locks.
            keep_apart(marlins, is_prefill=lambda: pauses.running is not None)
            _log.info("pdmuxd: prefill has locks of its own for Marlin's products: %d layers", len(marlins))
        return ""

    def _attention(self) -> tuple[object, ...]:
        runner = self._s.tp_worker.model_runner
        return (runner.attn_backend, *(runner.decode_attn_backend_group or ()))

    def _shared(self) -> str:
        """What a prefill by layers and a decode step were both seen to write; empty if it is nothing."""
        runner, batches = self._s.tp_worker.model_runner, ProbeBatches(self._s)
        pools = (self._s.token_to_kv_pool_allocator.get_kvcache(), self._s.req_to_token_pool)
        watch = Watch(runner.model, self._attention(), pools)
        group, graphs = self._port.stream_group, runner.decode_cuda_graph_runner
        try:
            batches.empty_cache()
            with watch.one():
                self._by_layers(batches.split_prefill([(tokens, 0) for tokens in _LENGTHS]), 1)
            runner.decode_cuda_graph_runner = None  # what a graph launches cannot be watched
            with watch.one():
                self._whole(batches.decode(_LENGTHS))
        except MODELS_OWN as error:
            _log.warning("pdmuxd: what prefill and decode both write was not found out: %s", _in_words(error))
            return ""
        finally:
            runner.decode_cuda_graph_runner = graphs
            self._port.use_group(group)
            self._port.forget_prefill_metadata()
        return watch.found()

    def _tried(self, lengths: tuple[int, ...], slices: int = 1) -> str:
        """What a comparison says; whatever a model makes of a made-up prompt, it can still serve whole."""
        wanted = [(tokens, 0) for tokens in lengths]
        # Two of them: each begins with the same tokens.
        first, second = ProbeBatches(self._s), ProbeBatches(self._s)
        group = self._port.stream_group
        try:
            first.empty_cache()
            whole = self._whole(first.mixed(wanted, ()))
            by_layers = self._by_layers(second.split_prefill(wanted), slices)
        except torch.OutOfMemoryError:
            raise
        except MODELS_OWN as error:
            return f"a prompt that was tried by layers ended with {_in_words(error)}"
        finally:
            self._port.use_group(group)
            self._port.forget_prefill_metadata()
        calls = self.pauses.calls if self.pauses is not None else 0
        if calls < self._layers:
            return f"its forward calls {calls} of its {self._layers} layers"
        dtype = self._s.model_config.dtype
        if slices == 1:
            return difference(whole, by_layers, dtype)
        return difference(whole, by_layers, dtype, roundings=SLICED_ROUNDINGS, most=SLICED_APART)

    def _whole(self, batch: Batch) -> Tensor:
        index = len(self._streams.groups) - 1
        self._port.use_group(index)
        stream = self._streams.groups[index].decode
        with self._streams.on(stream):
            stream.wait_stream(self._s.schedule_stream)
            result = self._s.tp_worker.forward_batch_generation(batch)
            self._streams.wait(self._streams.mark(stream))
        return result.logits_output.next_token_logits

    def _by_layers(self, batch: Batch, slices: int) -> Tensor:
        self._port.use_group(0)
        stream = self._streams.groups[0].prefill
        batch.split_forward_count = 1
        try:
            with self._streams.on(stream), self._port.collectives.in_force(), cut_into(slices):
                stream.wait_stream(self._s.schedule_stream)
                for _ in range(self._layers * slices):
                    result = self._s.tp_worker.forward_batch_split_prefill(batch)
                    batch.split_index += 1
                self._streams.wait(self._streams.mark(stream))
        finally:
            drop(batch.split_forward_batch)
        return result.logits_output.next_token_logits


def launch_layers(
    splitting: Splitting | None,
    runner: ModelRunner,
    batch: ForwardBatch,
    reinit_attn_backend: bool = False,  # noqa: ARG001, FBT - SGLang's signature; `_own_attention` does it
    forward_count: int = 1,
) -> object:
    """Replaces SGLang's own prefill by layers. Raises: EngineError where nothing pauses."""
    if splitting is None or splitting.pauses is None:
        raise EngineError("the model is not split, and was to be prefilled by layers")
    return splitting.pauses.launch(runner, batch, forward_count)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"


def difference(
    whole: Tensor,
    by_layers: Tensor,
    dtype: torch.dtype,
    *,
    roundings: int = ROUNDINGS,
    most: float = math.inf,
) -> str:
    """Why logits count as different; empty if they do not."""
    whole, by_layers = whole.double(), by_layers.double()
    if not bool(torch.isfinite(whole).all()):
        return "it gives no finite logits for a made-up prompt, so that a split cannot be checked"
    apart = float((whole - by_layers).abs().max() / whole.std())
    allowed = min(most, roundings * torch.finfo(dtype).eps)
    if apart <= allowed:
        return ""
    return (
        f"by layers its logits differ from those of the whole by {apart:.2g} of their deviation; "
        f"allowed is {allowed:.2g}"
    )
