"""What is read of YAML, and what is refused before anything is made of it."""

from __future__ import annotations

import pytest

from pdmuxd.daemon.cli.yaml_documents import MOST_BYTES, Whole, read_documents
from pdmuxd.engine.core.errors import InvalidValueError


def read(text: str | bytes) -> Whole:
    return Whole(read_documents(text.encode() if isinstance(text, str) else text, "a.yaml"))


def test_values_are_those_of_yaml_1_2_when_they_are_plain() -> None:
    text = "a: [yes, on, ~, null, '1', 1, -1, 1.5, 1e3, TRUE, tRue, 40ms, 2026-01-01, '', ]\n---\n# nothing\n"
    assert read(text).value == {
        "a": ["yes", "on", None, None, "1", 1, -1, 1.5, 1000.0, True, "tRue", "40ms", "2026-01-01", ""]
    }
    assert read("").value == {}
    assert read('{"a": {"b": 1}}').value == {"a": {"b": 1}}, "JSON is YAML"


def test_every_value_knows_its_line_when_it_is_asked_for() -> None:
    whole = read("tenants:\n  a:\n    weight: 2\n---\npolicy:\n  policy:\n    auto\ntenants:\n  b: {}\n")
    assert whole.where(("tenants", "a", "weight")) == "a.yaml:3"
    assert whole.where(("policy", "policy")) == "a.yaml:6"
    assert whole.where(("tenants", "b", "slo", "tbt_ms")) == "a.yaml:9", "the nearest that is there"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: *x", "1: *x is an alias; write out what it stands for"),
        ("a: &x [1]\nb: [*x, *x]", "2: *x is an alias; write out what it stands for"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "1: tag:yaml.org,2002:python/object/apply:os.system is a tag; ",
        ),
        ("a: !x 1", "1: !x is a tag; allowed are values without tags"),
        ("\n" * 9 + "[" * 100_000, "10: it is nested deeper than 16 levels"),
        ("{a: " * 100_000, "1: it is nested deeper than 16 levels"),
        ("? [a]\n: 1", "1: this is no name; allowed are names, each with its value"),
        ("a: 1\nb: 2\na: 3", "3: 'a' is here twice; it stands on line 1 already"),
        (
            "tenants: {a: {}}\n---\n\ntenants: {a: {}}",
            "4: tenants.a is here twice; it stands at a.yaml:1 already",
        ),
        ("policy: {}\n---\npolicy: {}", "3: policy is here twice; it stands at a.yaml:1 already"),
        ("a: 010", "1: 010 is no number; write it in decimal digits, or as a text in quotes"),
        ("a: 1:30", "1: 1:30 is no number; "),
        ("a: 1_000", "1: 1_000 is no number; "),
        ("a: .inf", "1: .inf is no number; "),
        ("- a", "1: this is no configuration; allowed are tenants, policy and prices"),
        ("a: [1", "2: this is not YAML: did not find expected ',' or ']'"),
        (b"a: \xff", "1: this is not YAML: "),
        (b"\xff\xfe\x00", "1: this is not YAML: "),
    ],
)
def test_the_line_is_named_when_a_file_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        read(text)
    assert str(error.value).startswith(f"a.yaml:{said}")


def test_a_file_is_not_read_when_it_is_too_long() -> None:
    with pytest.raises(InvalidValueError, match=f"allowed are at most {MOST_BYTES}"):
        read(b" " * (MOST_BYTES + 1))
