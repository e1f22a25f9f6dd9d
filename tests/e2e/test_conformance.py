"""Every request of the suite through a daemon with the emulated engine, against what SGLang answers."""

from conformity.differences import judge
from conformity.run import all_cases, ask_all, differences, recorded


def test_the_emulated_engine_answers_as_sglang_does_but_for_listed_differences(daemon):
    """`python tests/lab conformance` prints the same; with `--only TEXT`, whole shapes."""
    cases = all_cases()
    assert list(recorded()) == [case.name for case in cases]
    assert len(cases) >= 170
    before = daemon.engine()["pid"]
    unlisted, gone = judge(differences(ask_all(daemon, cases), recorded()))
    assert (unlisted, gone) == ([], [])
    assert daemon.engine()["pid"] == before
