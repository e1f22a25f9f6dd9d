"""The HTTP clients that other languages have of their own, whole and streamed.

Python's are in the gateway's tests. A language whose toolchain is not here is skipped. OpenAI's clients of
these languages come from their own registries: `python tests/lab stock-clients` asks with JavaScript's.
"""

import shutil

import pytest
from stock_clients import LANGUAGES, ask


@pytest.mark.parametrize("program", LANGUAGES)
def test_each_languages_own_client_gets_its_answers(program, daemon, tmp_path):
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    answers = ask(LANGUAGES[program], daemon, tmp_path)
    assert [answer["call"] for answer in answers] == ["stream false", "stream true"]
    assert [answer["problem"] for answer in answers] == [None, None]
