"""Which of SGLang's flags may be added."""

import pytest

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.launch.flags import REFUSED, adapters, check_parsed, split_extra, value_of


def test_flags_are_split_as_a_shell_would_when_they_are_harmless():
    words = split_extra("--mem-fraction-static 0.8 --json-model-override-args '{\"a\": 1}'")
    assert words == ("--mem-fraction-static", "0.8", "--json-model-override-args", '{"a": 1}')
    assert split_extra("") == ()


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("--enable-lora", "--enable-lora"),
        ("--lora-paths a=/a --max-loras-per-batch 1", "--max-loras-per-batch"),
        ("--enable-hierarchical-cache", "--enable-hierarchical-cache"),
        ("--pp-size 2", "--pp-size"),
        ("--pipeline-parallel-size=2", "--pipeline-parallel-size"),
        ("--speculative-algorithm EAGLE", "--speculative-algorithm"),
        ("--disaggregation-mode prefill", "--disaggregation-mode"),
        ("--mem-fraction-static 0.8 --api-key x", "--api-key"),
        ("--chunked-prefill-size 512", "--chunked-prefill-size"),
        ("--config flags.yaml", "--config"),
        ("--tp 2", "--tp"),
    ],
)
def test_a_flag_is_refused_by_name_when_it_would_break_multiplexing(text, flag):
    with pytest.raises(SettingsError, match=f"SGLang's flag {flag} is not allowed here: "):
        split_extra(text)


@pytest.mark.parametrize("text", ["--pp-size 1", "--disaggregation-mode=null", "--dp 1"])
def test_a_flag_passes_when_it_says_what_holds_anyway(text):
    assert split_extra(text)


def test_words_without_a_flag_are_refused_when_they_come_first():
    with pytest.raises(SettingsError, match="'sglang' is not a flag"):
        split_extra("sglang --device cpu")


def test_a_parsed_field_is_refused_when_an_abbreviation_hid_it():
    harmless = {field: refusal.harmless[0] for field, refusal in REFUSED.items() if refusal.harmless}
    check_parsed(harmless)
    with pytest.raises(SettingsError, match="--speculative-algorithm"):
        check_parsed(harmless | {"speculative_algorithm": "EAGLE"})


def test_the_last_of_a_flags_values_counts():
    assert value_of("--a", ("--a", "1", "--b", "--a=2")) == "2"
    assert value_of("--a", ("--a",)) == ""
    assert value_of("--a", ("--ab", "1")) is None


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("--mem-fraction-static 0.8", {}),
        ("--lora-paths chat=/a docs=/b --mem-fraction-static 0.8", {"chat": "/a", "docs": "/b"}),
        ("--lora-paths=chat=/a=b", {"chat": "/a=b"}),
        ("--lora-backend triton", {}),
    ],
)
def test_adapters_are_named_by_their_tenants(text, folders):
    assert adapters(split_extra(text)) == folders


@pytest.mark.parametrize("flag", ["--lora-path", "--lora-p=chat=/a"])
def test_an_abbreviation_is_refused_when_it_stands_for_adapters(flag):
    with pytest.raises(SettingsError, match=r"--lora-p(ath)? is not allowed: write --lora-paths"):
        split_extra(flag)


def test_adapters_are_refused_when_sglang_would_leave_out_those_of_the_first_flag():
    with pytest.raises(SettingsError, match="--lora-paths is given twice"):
        split_extra("--lora-paths chat=/a --lora-paths=docs=/b")


@pytest.mark.parametrize(
    "given",
    ["/a", "=/a", "chat=", "chat=/a chat=/b", "Chat=/a", """'{"lora_name": "a", "lora_path": "b=c"}'"""],
)
def test_adapters_are_refused_when_they_are_of_no_tenant_or_of_one_twice(given):
    with pytest.raises(SettingsError, match=r"--lora-paths: .* give each tenant's adapter once, as TENANT"):
        split_extra(f"--lora-paths {given}")
