"""Which engine a shipped profile stands in for."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pdmuxd.daemon.profiling.check import unseen_errors
from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.document import MeasuredProfile, read_file
from pdmuxd.engine.profiling.gate import doubts, refused_because
from pdmuxd.engine.profiling.shipped_profiles import shipped_for, shipped_profiles

MEASURED = Path(__file__).parents[3] / "docs/measurements"
H100, LLAMA = shipped_profiles()


def engine_of(profile: MeasuredProfile, **changes: object) -> Hello:
    """As SGLang introduces itself with this model on this GPU."""
    told = Hello(
        protocol=1,
        engine="sglang",
        engine_version="1",
        pid=1,
        model="served/by-another-name",
        device=profile.provenance.device,
        total_sms=profile.total_sms,
        partitions=profile.partitions,
        profile="roofline",
        profile_provenance="",
        settings_version=0,
        model_shape=replace(profile.model, name="served/by-another-name"),
        model_hash="of-its-own",
        device_shape=profile.device,
        overheads=profile.overheads,
        tensor_parallel=profile.tensor_parallel,
    )
    return msgspec.structs.replace(told, **changes)


def test_the_shipped_profile_is_the_measured_one_without_its_samples() -> None:
    measured = read_file(MEASURED / "h200/llama-8b.partition-kernels.profile.json.gz")
    fits = tuple(msgspec.structs.replace(fit, held_out=()) for fit in measured.fits)
    assert msgspec.structs.replace(measured, name="h200-llama-8b", samples=(), fits=fits) == LLAMA


def test_the_h100s_predicts_the_samples_that_it_was_fitted_to_and_has_no_doubtful_part() -> None:
    assert doubts(H100) == ()
    assert refused_because(H100, engine_of(H100)) is None
    measured = read_file(MEASURED / "h100/llama-8b.profile.json.gz")
    assert (H100.samples, H100.provenance.samples) == ((), len(measured.samples))
    for kind, errors in unseen_errors(H100, measured.samples).items():
        if " " not in kind:
            assert float(np.percentile(np.abs(errors), 90.0)) < 0.06, kind


@pytest.mark.parametrize("shipped", [H100, LLAMA], ids=lambda one: one.name)
def test_an_engine_of_the_same_gpu_and_shape_finds_it(shipped: MeasuredProfile) -> None:
    hello = engine_of(shipped)
    found = shipped_for(hello)
    assert found is not None
    assert found.solo_run == shipped.solo_run
    assert difference(found.predictors(1), hello) is None
    assert difference(found.predictors(1), msgspec.structs.replace(hello, model_hash="another")) is not None


@pytest.mark.parametrize("vocab", [LLAMA.model.vocab + 8, LLAMA.model.vocab - 256])
def test_a_tuned_model_finds_it_with_a_few_tokens_more_and_a_longer_context(vocab: int) -> None:
    shape = replace(LLAMA.model, vocab=vocab, max_context_tokens=8192)
    assert shipped_for(engine_of(LLAMA, model_shape=shape)) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "NVIDIA A100-SXM4-80GB"},
        {"total_sms": 114},
        {"variant": "weights in fp8"},
        {"model_shape": None},
        {"model_shape": replace(LLAMA.model, layers=36)},
        {"model_shape": replace(LLAMA.model, vocab=32000)},
        {"model_shape": replace(LLAMA.model, bytes_per_value=4)},
        {"tensor_parallel": replace(LLAMA.tensor_parallel, gpus=2)},
        {"partitions": (*LLAMA.partitions, (112, 20))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_engine_finds_none(changes: dict[str, object]) -> None:
    assert shipped_for(engine_of(LLAMA, **changes)) is None


def test_an_engine_with_fewer_splits_finds_it() -> None:
    assert shipped_for(engine_of(LLAMA, partitions=LLAMA.partitions[:3])) is not None
