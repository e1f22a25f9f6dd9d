"""Every exception that pdmuxd raises on purpose.

PdmuxdError
├── PartitionError          an SM split that the device cannot make
├── PolicyError             an unknown policy, or a parameter outside its range
├── ProfileError            a device or model profile that cannot be read or does not fit
├── SloError                a latency target outside its range
├── TraceError              a trace line that cannot be read; carries file and line number
├── EngineError             the engine process misbehaved
│   ├── EngineLostError          died while a request was in flight
│   ├── EngineSetupError         cannot serve until a person changes something
│   └── EngineInvariantError     an internal invariant was broken (a defect; see docs/invariants.md)
├── RequestError            a client's request that the data plane refuses; carries its HTTP answer
├── LinkError               a message that cannot be decoded, or an unacknowledged setting
├── SettingsError           a wrong configuration value; names the key and what is allowed
├── StoreError              the database is locked or does not answer
│   └── StoreSetupError          it is missing, damaged, or of another schema version
├── InvalidValueError       a name, label or limit outside what is allowed; carries the field's name
├── NotFoundError           no such tenant, key or SLO
├── ConflictError           the row was changed by someone else or exists, or the state forbids the action
│   ├── StaleVersionError        an edit that expected another version than the one in force
│   └── InfeasibleTargetError    a target that no plan of the policy in force is predicted to meet
└── AuthError               a key or token that is missing, unknown, revoked or not allowed
    ├── UnknownKeyError          no key of ours, or one that was revoked or has expired
    ├── KeyScopeError            a good key or token that is not made for this
    │   └── ReadOnlyError             a token that reads, on a call that changes something
    └── TenantDisabledError      a good key of a tenant that is switched off
"""

from __future__ import annotations

from collections.abc import Mapping


class PdmuxdError(Exception):
    """Base of every error that pdmuxd raises on purpose; its text is fit for a user."""


class PartitionError(PdmuxdError):
    """An SM split that the device cannot make."""


class PolicyError(PdmuxdError):
    """An unknown policy, or a parameter outside its range."""


class ProfileError(PdmuxdError):
    """A device or model profile that cannot be read or does not fit."""


class SloError(PdmuxdError):
    """A latency target outside its range."""


class TraceError(PdmuxdError):
    """A trace line that cannot be read; the text starts with `file:line:`."""


class EngineError(PdmuxdError):
    """The engine process misbehaved."""


class EngineLostError(EngineError):
    """The engine died while a request was in flight."""


class EngineSetupError(EngineError):
    """The engine cannot serve until a person changes something: starting it again does not help."""


class EngineInvariantError(EngineError):
    """An internal invariant was broken: a defect, never a user's fault (docs/invariants.md)."""


class RequestError(PdmuxdError):
    """A client's request that the data plane refuses, with the HTTP answer that it gets."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        param: str | None = None,
        retry_after_s: int | None = None,
        allow: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        """The field of the request's body that is wrong."""
        self.retry_after_s = retry_after_s
        self.allow = allow
        """The methods that the path allows, for a 405."""
        self.details = details or {}
        """What a program is told beside the message."""


class LinkError(PdmuxdError):
    """A link message that cannot be decoded, or a setting that was not acknowledged in time."""


class LinkProtocolError(LinkError):
    """The other end of the link speaks another version: the daemon's and the engine's pdmuxd differ."""


class SettingsError(PdmuxdError):
    """A wrong configuration value; the text names the key and what is allowed."""


class StoreError(PdmuxdError):
    """The database is locked, or does not answer as it should."""


class StoreSetupError(StoreError):
    """The database is missing, damaged, or of another schema version: a person has to do something."""


class InvalidValueError(PdmuxdError):
    """A name, label or limit outside what is allowed; the text names `field` and what is allowed."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class NotFoundError(PdmuxdError):
    """No such tenant, key or SLO."""


class ConflictError(PdmuxdError):
    """The row was changed by someone else or already exists, or the state does not allow the action."""


class StaleVersionError(ConflictError):
    """An edit that expected another version than the one in force; nothing was changed."""


class InfeasibleTargetError(ConflictError):
    """A target that no plan of the policy in force is predicted to meet; the text names the lowest one."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class AuthError(PdmuxdError):
    """A key or token that is missing, unknown, revoked, or not allowed to do this."""


class UnknownKeyError(AuthError):
    """No key of ours, or one that was revoked or has expired (HTTP 401)."""


class KeyScopeError(AuthError):
    """A good key or token that is not made for this (HTTP 403)."""


class ReadOnlyError(KeyScopeError):
    """A token that reads, on a call that changes something (HTTP 403)."""


class TenantDisabledError(AuthError):
    """A good key of a tenant that is switched off (HTTP 403)."""
