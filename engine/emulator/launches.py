"""What an engine's host adds to steps on the device. The emulated device's own times are of a campaign, whose
steps are formed ahead and whose fused batches are captured whole."""

from __future__ import annotations

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


PDMUXD = Launches()
"""Steps as in a campaign, as far as profiles that are derived go."""
