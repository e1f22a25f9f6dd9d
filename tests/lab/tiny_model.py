"""Writes a model of four layers with made-up weights, which SGLang serves on a CPU in a rehearsal.

python tests/lab tiny-model FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpu_servers.model_folder import write_model_folder, write_weights

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where it is written; its name is the model's")
    print(write_weights(write_model_folder("tiny", parser.parse_args().folder, torch_dtype="float32")))
