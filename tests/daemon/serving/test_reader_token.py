from __future__ import annotations

import pytest

from pdmuxd.controlplane.tenants.credentials import digest, is_same_digest
from pdmuxd.daemon.cli.main import main
from pdmuxd.daemon.serving.reader_token import ReaderToken


def matches(secret, sha256):
    return is_same_digest(digest(secret), sha256)


@pytest.fixture
def token(tmp_path):
    return ReaderToken(tmp_path / "state" / "reader-token.sha256")


def test_only_a_hash_is_kept_when_a_token_is_issued(token):
    secret = token.issue()
    assert matches(secret, token.sha256())
    assert secret not in token.path.read_text()
    assert token.path.stat().st_mode & 0o777 == 0o600


def test_the_former_token_ends_when_another_is_issued(token):
    first, second = token.issue(), token.issue()
    assert matches(second, token.sha256())
    assert not matches(first, token.sha256())


def test_there_is_none_when_it_is_revoked(token):
    token.issue()
    assert token.revoke()
    assert token.sha256() is None
    assert not token.revoke()


@pytest.mark.parametrize("content", ["", "not a hash", "0" * 63, "é" * 64])
def test_nothing_matches_when_the_file_holds_no_hash(token, content):
    token.path.parent.mkdir()
    token.path.write_text(content)
    assert token.sha256() is None


def test_the_secret_is_all_of_standard_output_when_a_token_is_issued(tmp_path, capsys):
    at = ["--set", f"state_dir={tmp_path}", "token"]
    assert main([*at, "issue"]) == 0
    secret = capsys.readouterr().out.strip()
    assert matches(secret, ReaderToken(tmp_path / "reader-token.sha256").sha256())
    assert main([*at, "status"]) == 0
    assert secret not in capsys.readouterr().out
    assert main([*at, "revoke"]) == 0
    assert main([*at, "status"]) == 0
    assert "no reader token" in capsys.readouterr().out.splitlines()[-1]


def test_one_line_names_the_key_when_the_file_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").touch()
    key = f"admin.reader_token_file={tmp_path / 'file' / 'token'}"
    assert main(["--set", f"state_dir={tmp_path}", "--set", key, "token", "issue"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "admin.reader_token_file: cannot write" in line
