"""Change the scheduling core line by line, and see whether a test fails: `make mutants`.

mutmut makes the mutants and runs for each the tests that reach it. It needs packages under their import
names, so all it works on is a copy, `.build/mutation`. Verdicts are kept there: the next run judges only what
has none yet, or what was changed since.

    python tests/mutation/mutants.py --minutes 30                       # goes on where the last run stopped
    python tests/mutation/mutants.py --sample 300                       # the same 300 each time
    python tests/mutation/mutants.py --survivors                        # after tests were added
    python tests/mutation/mutants.py 'pdmuxd.engine.core.guard*'        # these alone
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".build" / "mutation"
COPIED = {
    "engine": "src/pdmuxd/engine",
    "tests/conftest.py": "tests/conftest.py",
    "tests/support": "tests/support",
    "tests/engine/core": "tests/engine/core",
    "tests/engine/loop": "tests/engine/loop",
    "tests/engine/sglang": "tests/engine/sglang",
}
"""What is mutated, and the tests that judge it: those that reach it without a process or a device."""
MUTATED = ("engine/core/*", "engine/loop/*")
NOT_MUTATED = ("*/errors.py", "*/__init__.py")
"""Texts, and nothing."""
WANTED_RATIO = 0.9

CAUGHT = {1, 3, 24, -24, 36, 37, 152, 255, -9, -11}
"""Exit codes of a test run that noticed: a test failed, never ended, or the interpreter broke."""
MISSED = {0: "survived", 5: "no test reaches it", 33: "no test reaches it"}
"""All others say that the run was broken off: no verdict."""


def stage() -> None:
    """Bring the copy up to date; the mutants of a file that did not change keep their verdicts."""
    for source, target in COPIED.items():
        if (ROOT / source).exists():
            _copy(ROOT / source, PLACE / target)
    _write(PLACE / "pyproject.toml", _settings())


def _copy(source: Path, target: Path) -> None:
    files = [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else [source]
    wanted = {target / path.relative_to(source): path for path in files if "__pycache__" not in path.parts}
    for old in target.rglob("*") if target.is_dir() else ():
        if old.is_file() and old not in wanted:
            old.unlink()
            (PLACE / "mutants" / old.relative_to(PLACE)).unlink(missing_ok=True)
    for new, path in wanted.items():
        _write(new, path.read_text())


def _write(path: Path, text: str) -> None:
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    # mutmut does not copy again what it has.
    copy = PLACE / "mutants" / path.relative_to(PLACE)
    if copy.is_file() and path.is_relative_to(PLACE / "tests"):
        shutil.copy2(path, copy)


def _settings() -> str:
    """mutmut's settings, and pytest's as the project has them."""
    project = (ROOT / "pyproject.toml").read_text()
    pytest = project[project.index("[tool.pytest.ini_options]") :].split("\n[")[0].split("\n# The table")[0]
    mutated = [f"src/pdmuxd/{pattern}" for pattern in MUTATED]
    plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:rerunfailures", "-p", "no:randomly"]
    return f"""[tool.mutmut]
source_paths = ["src"]
only_mutate = {json.dumps(mutated)}
do_not_mutate = {json.dumps(NOT_MUTATED)}
pytest_add_cli_args = {json.dumps(plain)}
pytest_add_cli_args_test_selection = ["tests/engine"]
use_git_change_detection = false
timeout_constant = 5.0

{pytest}
"""


def verdicts() -> dict[str, int | None]:
    """Every mutant that was made, with mutmut's exit code; None if it has not been judged."""
    found: dict[str, int | None] = {}
    for path in sorted((PLACE / "mutants" / "src").rglob("*.meta")):
        text = path.read_text()
        if text.strip():  # else a run was killed while it wrote this file
            found |= json.loads(text)["exit_code_by_key"]
    return found


def run(names: Sequence[str], *, minutes: float, children: int) -> bool:
    """Have mutmut judge what has no verdict, for so long at most; whether it came to its end."""
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(children), *names]
    with (PLACE / "mutmut.log").open("w") as log:
        process = subprocess.Popen(
            ["nice", "-n", "10", *command],
            cwd=PLACE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(minutes * 60) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return True


def judged(codes: Iterable[int | None]) -> list[int]:
    """The codes that are a verdict."""
    return [code for code in codes if code is not None and (code in CAUGHT or code in MISSED)]


def caught_ratio(codes: Iterable[int | None]) -> float:
    """The share of judged mutants that a test noticed; 0 if none was judged."""
    verdict = judged(codes)
    return sum(code in CAUGHT for code in verdict) / len(verdict) if verdict else 0.0


def report(found: Mapping[str, int | None]) -> Iterator[str]:
    """A line per module, and what was not caught."""
    modules: dict[str, list[int | None]] = {}
    for name, code in found.items():
        modules.setdefault(name.partition(".x")[0].removeprefix("pdmuxd.engine."), []).append(code)
    yield f"{'module':36} {'mutants':>8} {'judged':>8} {'caught':>8}"
    for module, codes in [*sorted(modules.items()), ("all", list(found.values()))]:
        ratio = f"{caught_ratio(codes):8.1%}" if judged(codes) else f"{'-':>8}"
        yield f"{module:36} {len(codes):8} {len(judged(codes)):8} {ratio}"
    missed = [name for name, code in found.items() if code in MISSED]
    if missed:
        yield from ("", "Not caught (in .build/mutation: mutmut show NAME):")
        yield from (f"  {name}: {MISSED[found[name] or 0]}" for name in missed)


def main() -> int:
    """Exit 0 if at least 90% of what has been judged was caught, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help="mutants to judge, * for any characters; all if none is named"
    )
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="stop after so long; the next run goes on"
    )
    parser.add_argument("--sample", type=int, help="judge so many, drawn from all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--survivors", action="store_true", help="judge anew what earlier runs did not catch")
    parser.add_argument("--report", action="store_true", help="only show what earlier runs found")
    options = parser.parse_args()
    if not options.report:
        stage()
        names = options.names or _chosen(options)
        if names is not None and not run(names, minutes=options.minutes, children=options.children):
            sys.stdout.write((PLACE / "mutmut.log").read_text()[-3000:] + "\nmutmut failed\n")
            return 1
    found = verdicts()
    sys.stdout.write("\n".join(report(found)) + "\n")
    return 0 if caught_ratio(found.values()) >= WANTED_RATIO else 1


def _chosen(options: argparse.Namespace) -> list[str] | None:
    """The names to judge; [] for all that have no verdict, None if there is nothing to do."""
    if options.survivors:
        return [name for name, code in verdicts().items() if code in MISSED] or None
    if options.sample:
        run(["no mutant has this name"], minutes=10, children=1)  # it makes them all the same
        found = verdicts()
        drawn = random.Random(options.seed).sample(sorted(found), min(options.sample, len(found)))
        return sorted(name for name in drawn if not judged([found[name]])) or None
    return []


if __name__ == "__main__":
    sys.exit(main())
