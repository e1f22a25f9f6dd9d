"""Which communicator the ranks' sums go over, where several GPUs share a model."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.process import Parallel, ProcessGroup

GROUPS = (
    "tp_group",
    "attn_tp_group",
    "attn_cp_group",
    "dcp_group",
    "moe_dp_group",
    "moe_ep_group",
    "moe_tp_group",
    "shared_experts_tp_group",
)
"""Names by which SGLang's layers look up the ranks that they sum with."""


class PrefillCollectives:
    """A communicator for prefill alone, under every name that stands for decode's.

    Sums over one communicator must come one after the other on each GPU. If two of them meet, one on decode's
    stream and one on prefill's, each takes the other's signals and the GPUs wait for ever (two H200s,
    Llama-8B, seconds after the first split, 2026-11-22). SGLang makes a second communicator for
    `--enable-pdmux`. But its `pdmux_prefill_tp_group` replaces only the name `tp_group`, and attention asks
    for another one (0.5.23: `attn_tp_group`), so its sums would still use decode's.

    Raises: EngineError if layers sum over ranks for which there is no second communicator.
    """

    def __init__(self) -> None:
        parallel = self._parallel = sglang().get_parallel()
        self._own: dict[str, ProcessGroup] = {}
        if parallel.tp_size == 1:
            return
        decode = parallel.tp_group
        with sglang().pdmux_prefill_tp_group():
            prefill = parallel.tp_group
        for name in GROUPS:
            group = _group(parallel, name)
            if group is decode:
                self._own[name] = prefill
            elif group is not None and group.world_size > 1:
                raise EngineError(
                    f"SGLang's {name} is of {group.world_size} ranks and not the tensor-parallel group: "
                    "prefill beside decode has no communicator of its own for it"
                )

    def in_force(self) -> AbstractContextManager[object]:
        """Put them in force around what prefill launches."""
        if not self._own:
            return nullcontext()
        return self._parallel.override(**self._own)


def _group(parallel: Parallel, name: str) -> ProcessGroup | None:
    """None if SGLang made none."""
    try:
        group: ProcessGroup | None = getattr(parallel, name)
    except RuntimeError:
        return None
    return group
