"""What a step needs, looked for in seconds: a wheel that is missing is told at once, not after a start."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from experiments import LAB
from gpu_session.step import Need
from pdmuxd.daemon.bench.decide.checks import SGLANG, complaint_of
from pdmuxd.daemon.bench.servers import nvidia

_CODE = {
    Need.CLIENT: f"import sys; sys.path.insert(0, {str(LAB)!r}); import gpu_servers.runner",
    Need.FITS: f"import sys; sys.path.insert(0, {str(LAB)!r}); import gpu_plans.measure",
    Need.DAEMON: "import pdmuxd.daemon.cli.serve, pdmuxd.daemon.app, pdmuxd.daemon.cli.db, httptools, uvloop",
    Need.SGLANG: SGLANG,
    Need.GPU: (
        "from cuda.bindings import driver\n"
        "from pdmuxd.engine.sglang.launch.groups import find_device\n"
        "device = find_device(on_cpu=False)\n"
        "assert device.gpus >= {gpus}, f'{{device.gpus}} GPUs are visible, {gpus} are wanted'"
    ),
    Need.PREDICTORS: (
        "import json\nfrom pathlib import Path\n"
        "from pdmuxd.daemon.bench.servers.predicting import predictors\n"
        "[predictors({{model: Path(file)}}, model) for model, file in json.loads({files!r}).items()]"
    ),
}
_CHANGES = frozenset({Need.GPU, Need.TRACES, Need.PREDICTORS})
_WARNED = "import pynvml"
"""Without it a profile does not say at which clock it was measured; nothing else is missing."""
_WHOLE = (
    "import sglang.srt.managers.scheduler, sglang.launch_server, json\n"
    "from pdmuxd.engine.sglang.api import symbols\n"
    "wrong = symbols.broken()\n"
    "assert not wrong, wrong[0]"
)
"""All that a server imports: half a minute."""
_GREEN = (
    "import torch\n"
    "from pdmuxd.engine.sglang.streams.green import split_device\n"
    "total = torch.cuda.get_device_properties(torch.zeros(1, device='cuda').device).multi_processor_count\n"
    "split_device(0, 96, total - 96)"
)


class Checks:
    """Of one session: what was there once is not looked for again, but for the GPU and for files."""

    def __init__(self, traces: Path) -> None:
        self._traces = traces
        self._met: set[Need] = set()

    async def lacking(
        self,
        needs: tuple[Need, ...],
        *,
        environment: Mapping[str, str],
        gpus: int,
        predictors: Mapping[str, Path],
    ) -> str | None:
        """What is missing of the first need that is not met."""
        for need in needs:
            if need in self._met:
                continue
            said = await self._look(need, environment, gpus, predictors)
            if said is not None:
                return f"{need}: {said}"
            if need not in _CHANGES:
                self._met.add(need)
        return None

    async def _look(
        self, need: Need, environment: Mapping[str, str], gpus: int, predictors: Mapping[str, Path]
    ) -> str | None:
        if need is Need.TRACES:
            return _lacking_traces(self._traces)
        code = _CODE[need]
        if need is Need.PREDICTORS:
            code = code.format(files=json.dumps({model: str(path) for model, path in predictors.items()}))
        if need is not Need.GPU:
            return await complaint_of(code, environment)
        return await complaint_of(code.format(gpus=gpus), environment) or await _lacking_memory(environment)


async def whole(environment: Mapping[str, str], *, on_gpu: bool) -> str | None:
    """What of all that SGLang's server imports is missing, or why a GPU's SMs cannot be split."""
    return await complaint_of(_WHOLE, environment) or (
        await complaint_of(_GREEN, environment) if on_gpu else None
    )


async def warned(environment: Mapping[str, str]) -> str | None:
    """What is missing that nothing fails without."""
    return await complaint_of(_WARNED, environment)


def _lacking_traces(path: Path) -> str | None:
    wanted = "make it with `python tests/lab prepare-traces`"
    try:
        found = json.loads(path.read_text())
        missing = [name for name in ("conv", "code", "mooncake") if len(found[name]) < 2]
    except OSError:
        return f"{path}: there is no such file; {wanted}"
    except (ValueError, LookupError, TypeError) as error:
        return f"{path}: {type(error).__name__} {error}; {wanted}"
    return f"{path}: too few of {missing[0]}; {wanted}" if missing else None


async def _lacking_memory(environment: Mapping[str, str]) -> str | None:
    """Whether the GPU is free; what a step before left has a while to go."""
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not on the PATH, and whether the GPU's memory is free cannot be seen"
    for _ in range(20):
        used = await asyncio.to_thread(nvidia.used_bytes, environment.get("CUDA_VISIBLE_DEVICES"))
        if used < nvidia.FREE_BYTES:
            return None
        await asyncio.sleep(1.0)
    return f"{used / 2**30:.0f} GiB of its memory are in use by something else"
