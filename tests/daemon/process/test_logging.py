from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.controlplane.tenants.credentials import new_secret
from pdmuxd.daemon.process import logging as daemon_logging
from pdmuxd.daemon.process.logging import configure_logging, hide_secret, redact
from pdmuxd.daemon.process.redaction import mask_text, mask_url


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    daemon_logging._hidden.clear()


def configured(level: str = "info", log_format: str = "json") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level, log_format, stream)
    return stream


def test_one_json_object_a_line_is_written_when_the_format_is_json() -> None:
    stream = configured()
    structlog.get_logger("pdmuxd.access").info("request", status=200, tenant="a")
    logging.getLogger("uvicorn.error").warning("port %d is slow", 80)
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert (ours["event"], ours["level"], ours["logger"], ours["status"]) == (
        "request",
        "info",
        "pdmuxd.access",
        200,
    )
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "port 80 is slow",
        "warning",
        "uvicorn.error",
    )
    assert ours["timestamp"].endswith("Z")


def test_a_readable_line_without_colours_is_written_when_the_stream_is_no_terminal() -> None:
    stream = configured(log_format="console")
    structlog.get_logger("pdmuxd").info("engine serves", pid=7)
    assert "engine serves" in stream.getvalue()
    assert "pid=7" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_less_severe_messages_are_dropped_when_a_level_is_set() -> None:
    stream = configured(level="warning")
    structlog.get_logger("pdmuxd").info("no")
    logging.getLogger("other").info("no")
    structlog.get_logger("pdmuxd").warning("yes")
    assert len(stream.getvalue().splitlines()) == 1


def test_talkative_libraries_are_silent_when_they_only_inform() -> None:
    stream = configured(level="info")
    logging.getLogger("httpx").info("HTTP Request: GET http://127.0.0.1")
    logging.getLogger("httpx").warning("slow")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["slow"]


def test_each_message_is_written_once_when_logging_is_configured_twice() -> None:
    first, second = configured(), configured()
    structlog.get_logger("pdmuxd").info("once")
    assert (first.getvalue(), len(second.getvalue().splitlines())) == ("", 1)


def test_standard_error_is_written_to_when_no_stream_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    structlog.get_logger("pdmuxd").info("here")
    captured = capsys.readouterr()
    assert (json.loads(captured.err)["event"], captured.out) == ("here", "")


SECRET = "pdm_" + "Ab-_" * 10


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    "fields",
    [
        {"authorization": SECRET},
        {"Authorization": "Basic " + SECRET},
        {"admin_token": SECRET},
        {"x-api-key": SECRET},
        {"password": SECRET},
        {"text": f"key {SECRET} given"},
        {"headers": {"authorization": SECRET}},
        {"headers": [("Authorization", f"Bearer {SECRET}")]},
        {"body": f"Authorization: Bearer {SECRET}".encode()},
        {"error": ValueError(f"bad key {SECRET}")},
        {"url": f"postgresql://me:{SECRET}@host/db"},
    ],
)
def test_no_secret_is_written_when_a_field_holds_one(fields: dict[str, object], log_format: str) -> None:
    stream = configured(log_format=log_format)
    structlog.get_logger("pdmuxd").warning("event", **fields)
    assert SECRET not in stream.getvalue()
    assert "***" in stream.getvalue()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_secret_is_written_when_an_exception_holds_one(log_format: str) -> None:
    stream = configured(log_format=log_format)
    try:
        raise ValueError(f"bad key {SECRET}")
    except ValueError:
        structlog.get_logger("pdmuxd").exception("failed")
        logging.getLogger("uvicorn.error").exception("failed")
    assert stream.getvalue().count("ValueError: bad key pdm_***") == 2
    assert SECRET not in stream.getvalue()


def test_no_secret_is_written_when_another_library_logs_it() -> None:
    stream = configured()
    logging.getLogger("uvicorn.error").error("header %s", f"Bearer {SECRET}")
    assert SECRET not in stream.getvalue()


def test_a_text_is_masked_wherever_it_occurs_when_it_was_declared_secret() -> None:
    stream = configured()
    hide_secret("hand-made-admin-password")
    structlog.get_logger("pdmuxd").info("child", argv=["--x", "k=hand-made-admin-password;"])
    assert "hand-made" not in stream.getvalue()
    assert json.loads(stream.getvalue())["argv"] == ["--x", "k=***;"]


def test_messages_stay_readable_when_a_short_text_was_declared_secret() -> None:
    stream = configured()
    hide_secret("")
    hide_secret("a")
    structlog.get_logger("pdmuxd").info("banana")
    assert json.loads(stream.getvalue())["event"] == "banana"


@given(
    secret=st.builds(new_secret),
    before=st.text(max_size=20),
    after=st.sampled_from(["", " ", "'", '"', ",", "\n"]),
)
def test_an_issued_key_is_masked_in_any_text_when_something_stands_around_it(
    secret: str, before: str, after: str
) -> None:
    assert secret not in mask_text(f"{before} {secret}{after}")


def test_numbers_and_harmless_names_are_kept_when_events_are_redacted() -> None:
    event = {
        "output_tokens": 5,
        "token_file": "/var/lib/pdmuxd/admin-token",
        "key_id": "key_12",
        "first_token": 0.25,
        "ok": True,
        "none": None,
        "rate": 1.5,
    }
    assert redact(None, "info", dict(event)) == event


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:s3cret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?password=s3cret&x=1", "postgresql://host/db?password=***&x=1"),
        ("sqlite:////var/lib/a@b:c.db", "sqlite:////var/lib/a@b:c.db"),
        ("me:s3cret@host", "***"),
    ],
)
def test_only_the_password_goes_when_a_database_url_is_masked(url: str, expected: str) -> None:
    assert mask_url(url) == expected
