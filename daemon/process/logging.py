"""Logs: structlog's and the standard library's messages in one format, on standard error.

Everything that is written passes `redact` last, so that no key, token or password gets out, whichever
library wrote the message and however deep it is nested.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Mapping

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from pdmuxd.daemon.process.redaction import MASK, mask_text, names_secret

QUIET = ("alembic", "apscheduler", "httpcore", "httpx", "urllib3", "uvicorn")
"""Libraries whose `info` would repeat what the daemon says itself; their warnings are shown."""

_MIN_HIDDEN_LENGTH = 8
_hidden: set[str] = set()


def configure_logging(level: str, log_format: str, stream: io.TextIOBase | None = None) -> None:
    """Send all logs of at least `level` to `stream` (standard error), as `console` or `json` lines.

    May be called again; the last call holds.
    """
    stream = _StandardError() if stream is None else stream
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redact,
                _renderer(log_format, colors=stream.isatty()),
            ],
        )
    )
    _install(handler, level)


def hide_secret(secret: str) -> None:
    """Mask this very text in all logs from now on, such as an admin token that was just read."""
    if len(secret) >= _MIN_HIDDEN_LENGTH:  # masking a short text would garble unrelated messages
        _hidden.add(secret)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask secrets in an event: by the names of its fields, and by what its texts look like."""
    return {name: _masked_field(name, value) for name, value in event.items()}


def _masked_field(name: str, value: object) -> object:
    if names_secret(name) and isinstance(value, (str, bytes)):
        return MASK
    return _masked(value)


def _masked(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _masked_text(value)
    if isinstance(value, Mapping):
        return {str(name): _masked_field(str(name), item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_masked(item) for item in value]
    # The renderer would call repr() on anything else, after this processor: do it now.
    return _masked_text(value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value))


def _masked_text(text: str) -> str:
    for secret in _hidden:
        text = text.replace(secret, MASK)
    return mask_text(text)


def _renderer(log_format: str, *, colors: bool) -> Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer(sort_keys=False)
    # The plain formatter: the pretty one prints local variables, secrets included.
    return structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
    )


class _StandardError(io.TextIOBase):
    """Whatever `sys.stderr` is at the time of writing; it may be replaced after logging is configured."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


class _Handler(logging.StreamHandler[io.TextIOBase]):
    """Our handler, so that a second call of configure_logging finds the first one's."""


def _install(handler: logging.Handler, level: str) -> None:
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
