"""A plugin for SGLang, beside pdmuxd's own: says which communicator sums go over, of prefill layers and of
everything else. `test_tensor_parallel.py` starts a server with it."""

from __future__ import annotations

from typing import Any

NAME = "pdmuxd_logged_collectives"
SAYS = "collective of {stage} over {group}"


def register() -> None:
    """Called by SGLang in each of its processes, before its groups are made."""
    from sglang.srt.distributed.parallel_state import GroupCoordinator

    from pdmuxd.engine.sglang.internals.layerwise import SchedulerPrefill
    from pdmuxd.engine.sglang.internals.measuring import EngineMeasurer
    from pdmuxd.engine.sglang.internals.splitting import Splitting

    stages, told = ["the rest"], set()

    def noting(stage: str, launch: Any) -> Any:
        def launch_and_note(*args: Any, **kwargs: Any) -> Any:
            stages.append(stage)
            try:
                return launch(*args, **kwargs)
            finally:
                stages.pop()

        return launch_and_note

    def tell(original: Any) -> Any:
        def told_first(group: Any, *args: Any, **kwargs: Any) -> Any:
            says = SAYS.format(stage=stages[-1], group=group.unique_name)
            if group.world_size > 1 and says not in told:
                told.add(says)
                print(says, flush=True)
            return original(group, *args, **kwargs)

        return told_first

    SchedulerPrefill.launch_layers = noting("prefill layers", SchedulerPrefill.launch_layers)  # type: ignore[method-assign]
    EngineMeasurer._layers = noting("measured layers", EngineMeasurer._layers)  # type: ignore[method-assign]
    Splitting._by_layers = noting("tried layers", Splitting._by_layers)  # type: ignore[method-assign]
    for name in ("all_reduce", "all_gather"):
        setattr(GroupCoordinator, name, tell(getattr(GroupCoordinator, name)))
