"""Reasons found in logs, as SGLang 0.5.23 and its libraries write them."""

import pytest

from pdmuxd.daemon.supervisor.diagnosis import diagnose, parts_of_start, stage

SIGQUIT = "[2026-11-21 13:13:18] Received sigquit from a child process. It usually means the child failed.\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "scheduler.py", line 1, in run\n    raise\n'


@pytest.mark.parametrize(
    ("line", "text", "permanent"),
    [
        ("error: there is no model folder /m", "there is no model folder /m", True),
        ("error: cannot listen on 127.0.0.1:1: in use", "cannot listen on 127.0.0.1:1: in use", False),
        (
            "error: SGLang's flag --lora-paths: chat's adapter org/chat was not fetched",
            "engine.sglang.extra_args: SGLang's flag --lora-paths: chat's adapter org/chat was not fetched",
            True,
        ),
        ("pdmuxd plugin: SGLang 0.6.0 was not tested", "the plugin stopped the engine: SGLang 0.6.0", True),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
            "the GPU has too little free memory (--mem-fraction-static",
            False,
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "the GPU has too little free memory (--mem-fraction-static",
            False,
        ),
        ("OSError: [Errno 98] address already in use", "a port of the engine is in use", False),
        (
            "RuntimeError: CUDA error: invalid device ordinal",
            "there are fewer GPUs than engine.sglang.tp",
            True,
        ),
        (
            "AssertionError: 4 is not divisible by 3",
            "engine.sglang.tp_size does not fit the model: 4 is not divisible by 3",
            True,
        ),
        (
            "ValueError: Cannot find model module. 'FooForCausalLM' is not a registered model",
            "the model cannot be loaded (engine.sglang.model): Cannot find model module. 'FooForCausalLM'",
            True,
        ),
        (
            "RuntimeError: Cannot find any model weights with `/m`",
            "the model cannot be loaded (engine.sglang.model): Cannot find any model weights with `/m`",
            True,
        ),
        (
            "sglang serve: error: unrecognized arguments: --frobnicate",
            "engine.sglang.extra_args: unrecognized arguments: --frobnicate",
            True,
        ),
        ("KeyError: 'lm_head.weight'", "KeyError: 'lm_head.weight'", False),
    ],
)
def test_the_reason_is_one_sentence_when_the_log_has_one(line, text, permanent):
    found = diagnose(f"loading\n{TRACEBACK}{line}\n\n{SIGQUIT}")
    assert found.text.startswith(text)
    assert found.is_permanent is permanent
    assert "\n" not in found.text


def test_the_last_exception_is_told_when_none_is_known():
    log = f"{TRACEBACK}ValueError: first\n\nThe above was the cause\n\n{TRACEBACK}a.b.OddError: last\n"
    assert diagnose(log).text == "OddError: last"


def test_there_is_no_reason_when_the_log_has_none():
    assert diagnose("") is None
    assert diagnose("INFO: all is well\nTypeError is a word\n") is None


def test_a_long_reason_is_cut_when_it_would_fill_a_screen():
    assert len(diagnose("ValueError: " + "x" * 5000).text) == 400


def test_the_latest_stage_is_told_when_a_start_has_passed_several():
    lines = {
        "Load weight begin. avail mem=139.06 GB": "loading the model's weights",
        "Load weight end. elapsed=0.15 s, type=LlamaForCausalLM": "making the KV pool",
        "Capture target prefill CUDA graph begin. backend=breakable": "capturing graphs of fused batches",
        "Capture target prefill CUDA graph end. elapsed=30.11 s": "capturing graphs of fused batches",
        "Capture target decode CUDA graph begin. backend=full": "capturing decode graphs",
        "INFO:     Application startup complete.": "warming up",
        "pdmuxd: start: capturing decode graphs 3/10 (16 SMs)": "capturing decode graphs 3/10 (16 SMs)",
        "pdmuxd: start: 87 s: launcher 21.0, imports 66.0": "starting its server",
    }
    log = "hello\n"
    assert stage(log) is None
    for line, doing in lines.items():
        log += f"[2026-11-22 00:57:54] {line}\n"
        assert stage(log) == doing


def test_the_parts_of_a_start_are_known_when_it_is_over():
    log = "[2026] pdmuxd: start: making streams\n"
    assert parts_of_start(log) is None
    log += "[2026] pdmuxd: start: 87 s: launcher 21.0, imports 66.0\nserving\n"
    assert parts_of_start(log) == "87 s: launcher 21.0, imports 66.0"
