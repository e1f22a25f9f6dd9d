"""A plugin for SGLang, beside pdmuxd's own: says which communicator sums go over, of prefill layers and of
everything else. `test_tensor_parallel.py` starts a server with it."""

from __future__ import annotations

from typing import Any

NAME = "pdmuxd_told_collectives"
SAYS = "collective of {stage} over {group}"


def register() -> None:
    """Called by SGLang in each of its processes, before its groups are made."""
    from sglang.srt.distributed.parallel_state import GroupCoordinator

    from pdmuxd.engine.sglang.internals.layerwise import SchedulerPrefill

    stages, told = ["the rest"], set()
    launch_layers = SchedulerPrefill.launch_layers

    def launch_and_note(prefill: Any, batch: Any, layers: int) -> Any:
        stages.append("prefill layers")
        try:
            return launch_layers(prefill, batch, layers)
        finally:
            stages.pop()

    def tell(original: Any) -> Any:
        def told_first(group: Any, *args: Any, **kwargs: Any) -> Any:
            says = SAYS.format(stage=stages[-1], group=group.unique_name)
            if group.world_size > 1 and says not in told:
                told.add(says)
                print(says, flush=True)
            return original(group, *args, **kwargs)

        return told_first

    SchedulerPrefill.launch_layers = launch_and_note  # type: ignore[method-assign]
    for name in ("all_reduce", "all_gather"):
        setattr(GroupCoordinator, name, tell(getattr(GroupCoordinator, name)))
