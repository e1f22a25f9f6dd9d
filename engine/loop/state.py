"""What the loop carries from one safe point to the next, of which there is one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class LoopState:
    """Owned by the loop; its parts change it as plans are carried out and results are read."""

    policy_state: object
    """The policy's memory, which nobody else reads. A decision's comes in force when it is carried out, once
    (`PolicyRuntime.commit`), and what a step has taught when it was read (`PolicyRuntime.learn`)."""
    partition_id: int
    """Index into the policy's table of the group in force."""
    last_token_s: float = 0.0
    """When the decode batch last got tokens, or the fused step was launched that it begins with."""
