"""From the end of an engine's log to the one sentence that an operator reads; `logs/` has the ends."""

from pathlib import Path

import pytest

from pdmuxd.daemon.supervisor.diagnosis import diagnose

LOGS = Path(__file__).with_name("logs")
MEMORY = (
    "the GPU has too little free memory (--mem-fraction-static in engine.sglang.extra_args, "
    "engine.sglang.tp_size, a smaller model, or who else uses the GPU): "
)
TP = "engine.sglang.tp_size does not fit the model: "
PARTITIONS = "the GPU or its driver cannot make the partitions: "
DRIVER = "the GPU's driver does not fit this SGLang: "

SENTENCES = {
    "memory_weights": (MEMORY + "CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has", False),
    "memory_graphs": (MEMORY + "CUDA out of memory. Tried to allocate 20.00 MiB.", False),
    "memory_pool": (MEMORY + "Not enough memory. Please try to increase --mem-fraction-static.", False),
    "memory_unbalanced": (MEMORY + "The memory capacity is unbalanced. Some GPUs may be occupied", False),
    "memory_contexts": (MEMORY + "cuGreenCtxCreate failed: CUDA_ERROR_OUT_OF_MEMORY", False),
    "tp_assertion": (TP + "assert self.total_num_kv_heads % tp_size == 0", True),
    "tp_vocabulary": (TP + "128256 is not divisible by 5", True),
    "tp_too_few_gpus": (
        "there are fewer GPUs than engine.sglang.tp_size asks for: invalid device ordinal",
        True,
    ),
    "tp_launcher": ("a tensor-parallel size of 4 needs as many GPUs; here are 2", True),
    "green_launcher": ("the GPU's driver has no green contexts; multiplexing needs a driver for CUDA", True),
    "green_old_driver": (PARTITIONS + "the driver supports CUDA 12.2; green contexts need 12.4", True),
    "green_refused": (
        PARTITIONS + "cuDevSmResourceSplitByCount(112) failed: CUDA_ERROR_NOT_SUPPORTED",
        True,
    ),
    "green_other_sizes": (PARTITIONS + "partition 112,20: the driver gave 112,16 SMs instead", True),
    "plugin_hook": ("the plugin stopped the engine: SGLang did not apply the hook on sglang.srt.", True),
    "driver_old": (DRIVER + "The NVIDIA driver on your system is too old (found version 12020).", True),
    "driver_mismatch": (DRIVER + "system has unsupported display driver / cuda driver combination", True),
    "driver_launcher": ("the GPU's driver cannot be used: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", True),
    "model_config": (
        "the model cannot be loaded (engine.sglang.model): The hidden size (256) is not a multiple",
        True,
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_reason_is_one_clear_line_when_an_engine_ends_so(name):
    sentence, permanent = SENTENCES[name]
    found = diagnose((LOGS / f"{name}.log").read_text())
    assert found.text.startswith(sentence)
    assert found.is_permanent is permanent
    assert "\n" not in found.text
    assert "Traceback" not in found.text


def test_every_log_has_its_sentence():
    assert {path.stem for path in LOGS.iterdir()} == SENTENCES.keys()
