"""`muxwise`: the fewest decode SMs that meet the TBT target in the worst case; the rest prefill.

Source: MuxWise sections 3.2 to 3.4: six groups at 16-SM steps, solo-run prediction times contention guard.
"""

from __future__ import annotations

from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.bestfit import BestFitPolicy, SplitOptions


def muxwise(name: str, context: PolicyContext, options: SplitOptions) -> BestFitPolicy:
    """Build it with the given mechanisms."""
    return BestFitPolicy.build(name, context, context.table(), options)
