"""Stock SGLang and pdmuxd's engine on a CPU, on a model of four layers with the same weights for both.

The tests run in the project's own environment. SGLang has one of its own, `.venv-sglang`, which
`make install-sglang` makes, or the one whose Python $PYTHON_SGLANG names.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import late_device
import pytest
import sglang_plugin
from answer_forms import ask_forms
from both_ways import both_ways
from sglang_processes import KEY, TEXTS, Answers, OurServer, Prompts, StockServer, ask_all, complete

from gpu_servers.model_folder import write_model_folder, write_weights

HERE = f"{Path(__file__).parent}{os.sep}"
ROOT = Path(__file__).parents[2]
START_S = 600


def pytest_collection_modifyitems(items):
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker("sglang")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(START_S))


@pytest.fixture(scope="session")
def python():
    """SGLang's Python. Without one: skipped on a developer's machine, an error in CI."""
    path = Path(os.environ.get("PYTHON_SGLANG", ROOT / ".venv-sglang" / "bin" / "python")).absolute()
    if not path.is_file():
        if os.environ.get("CI"):
            pytest.fail(f"no SGLang: {path} is missing")
        pytest.skip(f"no SGLang: {path} is missing (make install-sglang)")
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Float32: greedy tokens then do not depend on what else is in a batch."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return write_weights(write_model_folder("tiny", folder, torch_dtype="float32"))


@pytest.fixture(scope="session")
def prompts():
    return Prompts.make(seed=7)


@pytest.fixture
async def gateways(ours):
    """A file's own server behind two gateways: the tokens of one come from the scheduler."""
    async with both_ways(ours) as found:
        yield found


@dataclass(frozen=True)
class Stock:
    """What stock SGLang says."""

    answers: Answers
    """To the prompts."""
    completions: list[str]
    """To TEXTS."""
    forms: list[Any]
    """To `answer_forms`."""


@pytest.fixture(scope="session")
def stock(python, model, prompts, tmp_path_factory):
    with StockServer(python, model, tmp_path_factory.mktemp("stock")) as server:
        return Stock(
            answers=asyncio.run(ask_all(server.base_url, prompts.without_aborts())),
            completions=[complete(server.base_url, KEY, text) for text in TEXTS],
            forms=asyncio.run(ask_forms(server.base_url)),
        )


@pytest.fixture(scope="session")
def late_device_variables(tmp_path_factory):
    """The environment of a server whose device is behind the host."""
    folder, file = tmp_path_factory.mktemp("late-device"), Path(late_device.__file__)
    return sglang_plugin.install(folder, late_device.NAME, file.stem, [file])


@pytest.fixture(scope="module")
def ours(python, model, tmp_path_factory):
    """pdmuxd's engine with the test at the daemon's end of its link."""
    with OurServer(python, model, tmp_path_factory.mktemp("ours")) as server:
        yield server
