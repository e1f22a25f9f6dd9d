"""A process that compiles DeepGEMM's kernels for one number of SMs, by launching each once
(`deep_gemm_kernels.py`)."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from pdmuxd.engine.sglang.api.symbols import deep_gemm
from pdmuxd.engine.sglang.internals.deep_gemm_sms import BLOCK


def launch(words: dict[str, Any], *, device: str) -> None:
    """Launch the products of each shape with each number of rows."""
    library = deep_gemm()
    library.set_num_sms(words["sms"])
    most = max(words["rows"])
    for outputs, inputs in words["shapes"]:
        columns = -(-inputs // BLOCK[1])
        x = torch.empty((most, inputs), dtype=torch.float8_e4m3fn, device=device)
        x_scales = torch.ones((most, columns), device=device)
        weights = torch.empty((outputs, inputs), dtype=torch.float8_e4m3fn, device=device)
        scales = torch.ones((-(-outputs // BLOCK[0]), columns), device=device)
        out = torch.empty((most, outputs), dtype=torch.bfloat16, device=device)
        for rows in words["rows"]:
            library.fp8_gemm_nt((x[:rows], x_scales[:rows]), (weights, scales), out[:rows])


def main() -> None:
    """Read what to launch from the command line."""
    words = json.loads(sys.argv[1])
    torch.cuda.set_device(words["gpu"])
    launch(words, device="cuda")
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
