"""Finds the laboratory's experiments by the names of their files."""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

LAB = Path(__file__).parent
FOLDERS = ("gpu_plans", "gpu_servers", "gpu_session", "in_sglang")
"""Packages whose modules with a `main(argv)` are experiments; beside them the scripts in this folder are."""


def command_of(name: str, *words: str) -> list[str]:
    """The command line of an experiment, for this Python."""
    return [sys.executable, "-P", str(LAB), name, *words]


def experiments() -> dict[str, Path]:
    """Every experiment's file by its name, those of a GPU first."""
    modules = [path for folder in FOLDERS for path in sorted((LAB / folder).glob("*.py"))]
    found = [path for path in modules if "\ndef main(argv" in path.read_text()]
    found += [path for path in sorted(LAB.glob("*.py")) if _is_script(path)]
    return {path.stem.replace("_", "-"): path for path in found}


def _is_script(path: Path) -> bool:
    return not path.stem.startswith("__") and '\nif __name__ == "__main__":' in path.read_text()


def about(path: Path) -> str:
    """The first sentence of a file's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(": ")[0].partition(". ")[0].rstrip(".:")


def run(name: str, words: Sequence[str]) -> int:
    """Run an experiment in this process; its exit code, also where it refuses the command line."""
    path = experiments()[name]
    try:
        if path.parent == LAB:
            sys.argv = [str(path), *words]
            runpy.run_path(str(path), run_name="__main__")
            return 0
        code: int = importlib.import_module(f"{path.parent.name}.{path.stem}").main(list(words))
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except ModuleNotFoundError as error:
        print(f"{name} needs {error.name}: run it with a Python that has it", file=sys.stderr)
        return 2
    return code
