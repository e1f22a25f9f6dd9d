"""The range of SGLang's versions."""

import pytest

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.api.versions import RANGE, TESTED, TRIED, check_supported, is_supported


@pytest.mark.parametrize("version", [*TESTED, f"{TESTED[-1]}.post2", f"{TESTED[0]}+cu130"])
def test_versions_in_the_range_are_taken(version):
    assert check_supported(version) == version


@pytest.mark.parametrize("version", ["0.5.21", "0.5.24", "0.6.22", "0.5.23rc1", "0.5.23.dev7", "main", ""])
def test_versions_outside_are_refused_with_the_range(version):
    assert not is_supported(version)
    with pytest.raises(SettingsError, match=rf"^SGLang {version} is installed; .* {RANGE} only$"):
        check_supported(version)


def test_one_version_is_taken_when_tests_try_it(monkeypatch):
    monkeypatch.setenv(TRIED, "0.5.24rc1")
    assert is_supported("0.5.24rc1")
    assert not is_supported("0.5.24")
    monkeypatch.setenv(TRIED, "")
    assert not is_supported("")
