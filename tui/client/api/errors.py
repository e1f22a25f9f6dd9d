"""Why a call did not do what was asked.

ApiError                  any of them
├── NoAnswerError         nothing answered: refused, cut, or not in time; a change may have been made or not
├── ForeignError          what answers is not pdmuxd's admin address
└── ProblemError          pdmuxd refused; carries status, code, field and detail
    ├── InvalidError          400, 422: a field is outside what is allowed
    ├── UnauthorizedError     401: no token, or an unknown one
    ├── ForbiddenError        403: a token that may not do this
    ├── NotFoundError         404: no such tenant, key, profile or route
    ├── ConflictError         409: it exists already, or its state does not allow this
    ├── StaleVersionError     412: it has changed since the version in `if_match`
    └── UnavailableError      429, 503: not now; `retry_after_s` where the daemon says when
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pdmuxd.tui.client.printable import printable

if TYPE_CHECKING:
    import httpx

PROBLEM = "application/problem+json"


class ApiError(Exception):
    """A call did not do what was asked; its text is fit for a person."""


class NoAnswerError(ApiError):
    """Nothing answered. `was_sent` is False if the call cannot have reached the daemon."""

    def __init__(self, detail: str, *, was_sent: bool) -> None:
        super().__init__(detail)
        self.was_sent = was_sent


class ForeignError(ApiError):
    """What answers with `status` is another program, or a pdmuxd that is understood no more."""

    def __init__(self, detail: str, *, status: int) -> None:
        super().__init__(detail)
        self.status = status


class ProblemError(ApiError):
    """pdmuxd refused the call."""

    def __init__(
        self, detail: str, *, status: int, code: str, field: str | None, retry_after_s: float | None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        """The field, its value and what is allowed, in a sentence."""
        self.status = status
        """Of HTTP."""
        self.code = code
        """What went wrong, for programs, such as `stale-version`; all are in docs/api.md."""
        self.field = field
        """The field of the request that is wrong, such as `slo.tbt_ms`, if it is one."""
        self.retry_after_s = retry_after_s
        """Seconds until it may be asked again, where the daemon says so."""


class InvalidError(ProblemError):
    """A field is outside what is allowed."""


class UnauthorizedError(ProblemError):
    """No token, or an unknown one."""


class ForbiddenError(ProblemError):
    """A token that may not do this."""


class NotFoundError(ProblemError):
    """There is no such thing, or no such route in this version of the daemon."""


class ConflictError(ProblemError):
    """Something exists already, or its state does not allow this."""


class StaleVersionError(ProblemError):
    """Something has changed since the version that `if_match` names; nothing was changed by this call."""


class UnavailableError(ProblemError):
    """The daemon cannot do it now."""


KINDS: dict[int, type[ProblemError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: StaleVersionError,
    422: InvalidError,
    429: UnavailableError,
    503: UnavailableError,
}


class _Problem(msgspec.Struct, kw_only=True):
    detail: str = ""
    type: str = ""
    field: str | None = None


def error_of(response: httpx.Response) -> ProblemError | ForeignError:
    """The error of an answer that has been read and is no success."""
    status = response.status_code
    if not response.headers.get("Content-Type", "").startswith(PROBLEM):
        return ForeignError(f"it is not pdmuxd's admin address (HTTP {status})", status=status)
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.MsgspecError:
        problem = _Problem()
    return KINDS.get(status, ProblemError)(
        printable(problem.detail) or f"HTTP {status}",
        status=status,
        code=problem.type.rpartition(":")[2],
        field=problem.field,
        retry_after_s=_seconds(response.headers.get("Retry-After")),
    )


def _seconds(text: str | None) -> float | None:
    """The header may also hold a date, which pdmuxd does not send."""
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def text_of(error: Exception) -> str:
    """An error's text, or its type where it has none: some errors of the HTTP library have no text."""
    return printable(str(error)) or type(error).__name__
