"""The laboratory's one entry point: names, options, refusals."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments import LAB, about, experiments

ROOT = Path(__file__).parents[3]


def lab(*words, folder=ROOT):
    command = [sys.executable, "-P", str(LAB), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_every_experiment_says_what_it_measures_when_they_are_listed():
    said = lab().stdout
    for name, path in experiments().items():
        assert about(path), name
        assert re.search(rf"^  {re.escape(name)} +{re.escape(about(path)[:20])}", said, re.MULTILINE)


def test_an_unknown_name_is_refused_with_those_that_there_are():
    done = lab("matrx")
    assert done.returncode == 1
    assert "'matrx' is no experiment; allowed are agreement, " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_experiment_reads_its_options_when_it_is_started_from_another_folder(tmp_path):
    done = lab("table", "none.jsonl", folder=tmp_path)
    assert done.returncode == 2
    assert "usage: python tests/lab table" in done.stderr
    assert "none.jsonl: there is no such file" in done.stderr


def test_a_script_runs_with_its_own_options_when_it_is_named():
    done = lab("ship-profile", "--help")
    assert done.returncode == 0, done.stderr
    assert "--" in done.stdout


@pytest.mark.skipif(find_spec("torch") is not None, reason="this Python has PyTorch")
def test_a_missing_package_is_named_when_an_experiment_needs_pytorch():
    done = lab("first-launches", "--model", "llama-8b")
    assert done.returncode == 2
    assert done.stderr.strip() == "first-launches needs torch: run it with a Python that has it"


def test_no_two_modules_have_one_name_when_experiments_import_them_from_two_folders():
    own, beside = ({path.stem for path in folder.glob("*.py")} for folder in (LAB, LAB / "front_end"))
    assert not own & beside


def test_every_command_of_the_documents_is_an_experiment():
    known = experiments()
    documents = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), ROOT / "Makefile"]
    named = {
        (path.name, name)
        for path in documents
        for name in re.findall(r"(?:python|\$\(PY\)) tests/lab ([a-z][a-z0-9-]+)", path.read_text())
    }
    assert len(named) > 30
    assert sorted((page, name) for page, name in named if name not in known) == []
