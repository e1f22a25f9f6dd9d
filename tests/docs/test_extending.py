"""The example package of docs/extending.md, and packages that are wrong."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from observations import linear_context, observe, waiting

from pdmuxd.daemon.replay.formats.read import known_formats, open_trace
from pdmuxd.engine.core.errors import PolicyError, TraceError
from pdmuxd.engine.core.policies.registry import known_policies, parse_policy

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-package"
POINTS: dict[str, dict[str, str]] = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"][
    "entry-points"
]


def install(folder: Path, name: str, points: dict[str, dict[str, str]]) -> None:
    """As pip would: the entry points of a package `name` beside its modules."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in its.items()) for group, its in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, "pdmuxd_example", POINTS)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, ask: Any) -> str:
    install(
        folder / "wrong", "wrong", {"pdmuxd.policies": {name: value}, "pdmuxd.trace_formats": {name: value}}
    )
    monkeypatch.syspath_prepend(str(folder / "wrong"))
    with pytest.raises((PolicyError, TraceError)) as error:
        ask(name)
    return str(error.value)


@pytest.mark.usefixtures("example")
def test_its_policy_halves_the_budget_while_requests_decode() -> None:
    policy = parse_policy("halved:512").build(linear_context())
    assert policy.name == "halved:512"
    idle, busy = (
        policy.decide(observe(queue=(waiting(0, 1000),), decode_bs=count), None)[0].token_budget
        for count in (0, 3)
    )
    assert (idle, busy) == (512, 256)


@pytest.mark.usefixtures("example")
def test_both_are_listed_and_checked_when_the_package_is_installed(tmp_path: Path) -> None:
    assert known_policies()[-1].syntax == "halved:N"
    assert known_formats()[-1] == "seconds"
    with pytest.raises(PolicyError, match="give a token budget from 32 to 65536"):
        parse_policy("halved:9")
    trace = tmp_path / "trace.csv"
    trace.write_text("0.5,1000,20\n1.5,2000,30\n")
    found, requests = open_trace(trace, "seconds")
    assert (found, [(it.arrival_s, it.input_tokens) for it in requests]) == (
        "seconds",
        [(0.5, 1000), (1.5, 2000)],
    )
    trace.write_text("0.5,1000\n")
    with pytest.raises(TraceError, match=r":1: allowed are seconds,input tokens,output tokens"):
        list(open_trace(trace, "seconds")[1])


def test_nothing_is_listed_when_no_package_is_installed() -> None:
    assert "halved" not in [info.name for info in known_policies()]
    with pytest.raises(PolicyError, match="unknown policy 'halved'"):
        parse_policy("halved:512")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_module:POLICY", "ModuleNotFoundError"),
        ("pdmuxd_example:NO_SUCH", "AttributeError"),
        ("pdmuxd_example:parse", "is no InstalledPolicy"),
    ],
)
def test_a_policy_is_refused_with_its_package_when_it_cannot_be_loaded(
    example: Path, monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    said = refused(example, monkeypatch, "broken", value, parse_policy)
    assert said.startswith("policy 'broken' of the package wrong cannot be loaded: ")
    assert why in said
    (shown,) = (info for info in known_policies() if info.name == "broken")
    assert shown.summary == said, "the list still shows the others"


def test_a_name_is_refused_when_two_packages_have_it(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(example, monkeypatch, "halved", "pdmuxd_example:HALVED", parse_policy)
    assert said == "policy 'halved' is in several packages: wrong, pdmuxd_example"
    install(example / "third", "third", {"pdmuxd.trace_formats": POINTS["pdmuxd.trace_formats"]})
    monkeypatch.syspath_prepend(str(example / "third"))
    with pytest.raises(TraceError, match="is in several packages"):
        open_trace(example / "trace", "seconds")


def test_our_policy_stays_when_another_package_takes_its_name(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [info for info in known_policies() if info.name == "auto"]
    install(example / "auto", "auto", {"pdmuxd.policies": {"auto": "pdmuxd_example:HALVED"}})
    monkeypatch.syspath_prepend(str(example / "auto"))
    assert [info for info in known_policies() if info.name == "auto"] == before
    assert parse_policy("auto").may_split


@pytest.mark.slow
def test_the_package_works_when_pip_has_installed_it(tmp_path: Path) -> None:
    place = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    copied = tmp_path / "package"
    copied.mkdir()
    for file in EXAMPLE.glob("p*.*"):
        (copied / file.name).write_bytes(file.read_bytes())
    subprocess.run([*pip, "--no-index", "--target", str(place), str(copied)], check=True)
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(f"{n / 2},1000,20\n" for n in range(20)))
    words = ["replay", str(trace), "--format", "seconds", "--policy", "halved:512", "--policy", "auto"]
    done = subprocess.run(
        [sys.executable, "-m", "pdmuxd.daemon.cli.main", *words],
        env={"PYTHONPATH": str(place), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "halved:512" in done.stdout
