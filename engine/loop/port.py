"""What the loop needs of an engine's queues, batches and streams.

SGLang's is `engine/sglang/internals/scheduler.py`, the emulated GPU's `engine/emulator/port.py`.

Batches, requests and results are the engine's own objects and stay opaque to the loop; events are
DeviceStreams' own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from pdmuxd.engine.core.types import DecodeShape, PrefillGraph
from pdmuxd.engine.loop.requests import RefusalCause


class LaunchedStep(Protocol):
    """A step on the decode stream whose result has not been read."""

    @property
    def start(self) -> Any:
        """Event ahead of it."""

    @property
    def end(self) -> Any:
        """Event behind it."""

    @property
    def requests(self) -> Any:
        """The engine's requests in the step, for the RequestBook."""

    @property
    def prompt_tokens(self) -> int:
        """New tokens of prompts in a fused step."""


class EngineState(Protocol):
    """What there is. Changes nothing."""

    @property
    def layers(self) -> int:
        """Decoder layers of the model."""

    @property
    def tp_size(self) -> int:
        """Ranks that run this loop in step."""

    @property
    def is_stopping(self) -> bool:
        """The loop is to end."""

    @property
    def is_paused(self) -> bool:
        """The loop is to launch nothing for now."""

    @property
    def is_first_rank(self) -> bool:
        """Whether this process decides."""

    @property
    def waiting(self) -> Any:
        """Requests that hold no KV, in arrival order; for the RequestBook, but for their number."""

    @property
    def running(self) -> Any:
        """Requests that decode; for the RequestBook, but for their number."""

    @property
    def chunked_request(self) -> Any:
        """The request whose prefill is under way in chunks, or None."""

    @property
    def chunked_end(self) -> int:
        """Tokens of the chunked request that are cached or were launched."""

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV pool holds."""

    @property
    def kv_free_tokens(self) -> int:
        """Free plus evictable tokens of the KV pool."""

    @property
    def cached_tokens(self) -> int:
        """Tokens in the prefix cache, in use or not."""

    def decode_shape(self, without: Collection[str] = ()) -> DecodeShape:
        """Batch size and the KV tokens that the next step reads, if these requests sit it out."""

    def decode_contexts(self) -> Sequence[tuple[str, int]]:
        """Id and context tokens of each request that decodes."""

    def still_waiting(self, request_ids: Sequence[str]) -> Collection[str]:
        """The ones of these that wait; there may be others in the answer."""


class DecodeStream(Protocol):
    """Decode and fused steps."""

    def settle(self) -> None:
        """Requests whose prompt the last fused step completed join the decode batch; ended ones leave it."""

    def launch_decode(self, without: Collection[str] = ()) -> Any:
        """One decode step for all that decode but these; None if nothing is left to decode."""

    def launch_fused(
        self,
        request_ids: Sequence[str],
        budget_tokens: int,
        graph: PrefillGraph | None = None,
        *,
        decodes: bool = True,
        chunk_waits: bool = False,
        chunk_last: bool = False,
        without: Collection[str] = (),
    ) -> Any:
        """One batch of the decoding requests, if these are to get a token, and of prompt tokens, both within
        the budget; None if it would be empty.

        `graph`: to be run as one, if the engine has such. `chunk_waits`: without the prompt whose prefill is
        under way in chunks, and `request_ids` whole. `chunk_last`: `request_ids` whole, and that prompt the
        rest of the budget. `without`: decoding requests that sit this step out.
        """

    def wait(self, launched: Any) -> None:
        """Block until the device is done with the oldest step in flight."""

    def read(self, launched: Any) -> None:
        """Take the tokens of the oldest step in flight, with which the device is done."""

    def nothing_launched(self) -> None:
        """This turn launched no decode or fused step."""


class PrefillStream(Protocol):
    """Layer-wise prefill."""

    def form_prefill(self, request_ids: Sequence[str], graph: PrefillGraph | None = None) -> Any:
        """Take KV for these requests; a batch at layer 0, or None if none of them fits. Its `reqs` are the
        requests in it. `graph`: to be run as one, if the engine has such."""

    def waits_for_device(self, new_tokens: int, stream_group: int) -> bool:
        """Whether to form a prefill of so many tokens for the streams of this group would wait until the
        device has nothing to do, now."""

    def launch_layers(self, batch: Any, layers: int, slices: int) -> tuple[Any, Any, Any]:
        """The next layers of a batch; with `slices` over 1, of one prompt, the next of so many parts into
        which each layer is cut by tokens: (start event, end event, result). The result is None until the last
        layer is launched."""

    def finish_prefill(self, batch: Any, result: Any, end: Any, *, hold: bool) -> None:
        """Hand a finished batch over to decode, its first tokens held back or not."""

    def release_tokens(self) -> None:
        """First tokens that were held back go out."""

    def is_abandoned(self, batch: Any) -> bool:
        """Whether all requests of a batch were aborted."""

    def drop_prefill(self, batch: Any) -> None:
        """End an abandoned batch and give its KV back."""


class EnginePort(Protocol):
    """One scheduler process."""

    @property
    def state(self) -> EngineState:
        """What there is."""

    @property
    def decode(self) -> DecodeStream:
        """Decode and fused steps."""

    @property
    def prefill(self) -> PrefillStream:
        """Layer-wise prefill."""

    @property
    def stream_group(self) -> int:
        """Index of the group whose streams are in force."""

    def take_input(self) -> None:
        """Receive requests and controls."""

    def idle(self) -> None:
        """Nothing is launched or pending: housekeeping."""

    def agree(self, plan: Any) -> Any:
        """Rank 0's plan of this turn, on every rank."""

    def refuse(self, refusals: Sequence[tuple[str, RefusalCause]]) -> None:
        """End waiting requests with an error that names the cause. One that waits no more is left alone."""

    def use_group(self, index: int) -> None:
        """Put the streams of a group in force. What is launched next waits on the device for what the old
        streams hold (invariant 2)."""
