"""What the daemon predicts with, of the engine that introduced itself."""

from __future__ import annotations

import msgspec
import pytest
from profiling import greeting_of, measured_profile

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.daemon.serving.live_predictors import LivePredictors
from pdmuxd.engine.core.shapes import TensorParallel
from pdmuxd.engine.core.types import PrefillShape
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.link.messages import EngineSettings, Hello
from pdmuxd.engine.link.predictors import Predictors

PROMPT = PrefillShape.of([(8192, 0)])
UNPROFILED = msgspec.structs.replace(greeting_of("8xa100-llama-70b"), engine="sglang")


def predicting(hello: Hello, predictors: Predictors | None = None) -> tuple[str, float]:
    """The name of what predicts, and what it says of a prompt on all SMs."""
    status = EngineStatus(state="serving", since_s=0.0, hello=hello)
    settings = EngineSettings(version=1, policy="auto", tenants=(), predictors=predictors)
    found = LivePredictors(status=lambda: status, wanted=lambda: settings, emulated="h200-llama-8b")()
    assert found is not None
    return found.name, found.context.latency.prefill_s(PROMPT, hello.total_sms)


def test_each_gpus_share_of_the_model_is_predicted_when_nothing_was_measured() -> None:
    truth_s = load_profile("8xa100-llama-70b").truth.prefill_s(PROMPT, UNPROFILED.total_sms)
    assert predicting(UNPROFILED) == ("roofline", truth_s)
    alone = msgspec.structs.replace(UNPROFILED, tensor_parallel=TensorParallel(gpus=1))
    assert predicting(alone)[1] > 4.0 * truth_s


@pytest.mark.parametrize(("gpus", "name"), [(8, "p"), (2, "roofline")])
def test_the_profile_predicts_when_it_is_of_as_many_gpus(gpus: int, name: str) -> None:
    hello = msgspec.structs.replace(UNPROFILED, tensor_parallel=TensorParallel(gpus=gpus))
    predictors = measured_profile(profile="8xa100-llama-70b").predictors(3)
    assert predicting(hello, predictors)[0] == name


def test_the_roofline_behind_a_profile_is_of_as_many_gpus() -> None:
    predictors = msgspec.structs.replace(
        measured_profile(profile="8xa100-llama-70b").predictors(3), solo_run=()
    )
    truth_s = load_profile("8xa100-llama-70b").truth.prefill_s(PROMPT, UNPROFILED.total_sms)
    assert predicting(UNPROFILED, predictors) == ("p", truth_s)
