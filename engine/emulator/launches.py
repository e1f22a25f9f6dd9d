"""What an engine's host adds to steps on the device. The emulated device's own times are of a campaign, whose
steps are formed ahead and whose fused batches are captured whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Seconds that the device is idle, or does work that a campaign's steps do not have."""

    fused_step_s: float = 0.0
    """Of each fused step."""
    fused_layer_s: float = 0.0
    """Of each layer of a fused step."""
    fused_layer_request_s: float = 0.0
    """Of each decoding request in a layer of a fused step."""
    decode_step_s: float = 0.0
    """Of each decode step, before it is launched."""

    def fused_s(self, decode_bs: int, layers: int) -> float:
        """What is added to a fused step."""
        per_layer_s = self.fused_layer_s + self.fused_layer_request_s * decode_bs
        return self.fused_step_s + per_layer_s * layers


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTurn:
    """Seconds that the scheduler's thread needs for a step.

    It launches a step while the one before it runs, so the device waits where the thread needs longer.
    """

    form_fused_s: float = 0.0
    """To form a batch with prompt tokens, of a step or by layers, before it is launched."""
    form_request_s: float = 0.0
    """To take in and form each request that begins in it."""
    form_row_s: float = 0.0
    """To plan and to form, of each request that decodes in it."""
    launch_s: float = 0.0
    """To launch it; the device begins at once."""
    read_row_s: float = 0.0
    """To read the token of each request that decodes, before all of them are handed out."""
    end_request_s: float = 0.0
    """To end each request whose last token it is."""

    def form_s(self, *, rows: int, begun: Sequence[bool]) -> float:
        """What passes before a launch; `begun` says of each prompt in the step whether it begins there."""
        requests_s = self.form_request_s * sum(begun)
        return self.form_fused_s * bool(begun) + requests_s + self.form_row_s * rows

    def read_s(self, *, rows: int, ended: int) -> float:
        """What passes between the end of a step and its tokens."""
        return self.read_row_s * rows + self.end_request_s * ended


NO_TIME = HostTurn()
"""A host that is never what the device waits for."""

PDMUXD = Launches()
"""Steps as in a campaign, as far as profiles that are derived go."""
