"""What an operator may have done by a line of words: what it calls, and what is asked before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.tui.show.lines import Line, fit, line
from pdmuxd.tui.show.roles import Role

NAME = r"(?P<name>[a-z0-9][a-z0-9-]{0,62})"
ID = r"(?P<id>[A-Za-z0-9_-]{1,64})"
NUMBER = r"(?P<number>[0-9]{1,7})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One kind of change."""

    usage: str
    pattern: str
    method: str
    path: str
    body: Mapping[str, object]
    asks: str
    """What it does, for the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change that was typed."""

    method: str
    path: str
    body: Mapping[str, object] | None
    asks: str


FORMS: Sequence[Form] = (
    Form(
        usage="create NAME",
        pattern=rf"create {NAME}",
        method="POST",
        path="/tenants",
        body={"name": "{name}"},
        asks="create the tenant {name}, with the default targets and no key",
    ),
    Form(
        usage="disable NAME",
        pattern=rf"disable {NAME}",
        method="PATCH",
        path="/tenants/{name}",
        body={"enabled": False},
        asks="disable {name}: its keys are answered with 403, what is in flight finishes",
    ),
    Form(
        usage="enable NAME",
        pattern=rf"enable {NAME}",
        method="PATCH",
        path="/tenants/{name}",
        body={"enabled": True},
        asks="enable {name}",
    ),
    Form(
        usage="limit NAME REQUESTS",
        pattern=rf"limit {NAME} {NUMBER}",
        method="PATCH",
        path="/tenants/{name}",
        body={"max_in_flight": "{number}"},
        asks="let {name} have {number} requests in flight",
    ),
    Form(
        usage="key issue NAME",
        pattern=rf"key issue {NAME}",
        method="POST",
        path="/tenants/{name}/keys",
        body={},
        asks="issue a key to {name}, which is shown once",
    ),
    Form(
        usage="key rotate ID",
        pattern=rf"key rotate {ID}",
        method="POST",
        path="/keys/{id}/rotate",
        body={},
        asks="issue a key in the place of {id}, which goes on being good for the overlap",
    ),
    Form(
        usage="key revoke ID",
        pattern=rf"key revoke {ID}",
        method="DELETE",
        path="/keys/{id}",
        body={},
        asks="revoke the key {id} for good, at once",
    ),
    Form(
        usage="profile activate ID",
        pattern=r"profile activate (?P<id>[0-9]{1,18})",
        method="POST",
        path="/profiles/{id}/activate",
        body={},
        asks="put profile {id} in force, without a restart",
    ),
    Form(
        usage="profile rollback",
        pattern="profile rollback",
        method="POST",
        path="/profiles/rollback",
        body={},
        asks="put in force what was before the newest activation of a profile",
    ),
    Form(
        usage="policy set SPEC",
        pattern=r"policy set (?P<name>[a-z0-9_][^ ]{0,120})",
        method="PUT",
        path="/policy",
        body={"policy": "{name}"},
        asks="let {name} decide from the next safe point on, with the splits of the settings and no shadow",
    ),
    Form(
        usage="policy rollback",
        pattern="policy rollback",
        method="POST",
        path="/policy/rollback",
        body={},
        asks="set the policy again that was before",
    ),
)


def parse(typed: str) -> Change | None:
    """The change that was typed; None where the words are none of FORMS."""
    words = " ".join(typed.split())
    for form in FORMS:
        found = re.fullmatch(form.pattern, words)
        if found is not None:
            parts = found.groupdict()
            body = {key: _filled(value, parts) for key, value in form.body.items()}
            return Change(
                method=form.method,
                path=form.path.format(**parts),
                body=None if form.method == "DELETE" else body,
                asks=form.asks.format(**parts),
            )
    return None


def usage_lines(typed: str, width: int) -> list[Line]:
    """The forms that what was typed may become."""
    words = typed.split()
    fitting = [form for form in FORMS if _may_become(form, words)]
    return [
        fit(
            line(
                (f"{form.usage:<22} ", Role.STRONG), (form.asks.split(":")[0].format_map(_Names()), Role.DIM)
            ),
            width,
        )
        for form in fitting or FORMS
    ]


class _Names(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key.upper()


def _may_become(form: Form, words: Sequence[str]) -> bool:
    wanted = form.usage.split()
    return len(words) <= len(wanted) and all(
        want.isupper() or want.startswith(word) for word, want in zip(words, wanted, strict=False)
    )


def _filled(value: object, parts: Mapping[str, str]) -> object:
    if value == "{number}":
        return int(parts["number"])
    return value.format(**parts) if isinstance(value, str) else value
