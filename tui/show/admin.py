"""What an operator may have done by a line of words: what it calls, and what is asked before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.tui.show.lines import Line, fit, line
from pdmuxd.tui.show.roles import Role

NAME = r"(?P<name>[a-z0-9][a-z0-9-]{0,62})"
ID = r"(?P<id>[A-Za-z0-9_-]{1,64})"
NUMBER = r"(?P<number>[0-9]{1,15})"
AMOUNT = r"(?P<amount>[0-9]{1,15}|none)"
WEIGHT = r"(?P<weight>[0-9]{1,7}(\.[0-9]{1,6})?)"
SHARE = r"(?P<share>(0|1|0?\.[0-9]{1,6}|1\.0{1,6})|none)"
ONE_OF = r"(?P<one>[a-z]{1,20})"
LIMIT = r"(?P<limit>[a-z][a-z_]{1,40})"
ACTION = r"( (?P<action>wait|refuse))?"
BECAUSE = re.compile(r"(?P<change>.*?) because (?P<why>.+)")
"""Whatever is typed before it, the rest of the line is the reason that the audit keeps."""


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
    why: str | None = None


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
        usage="limit NAME LIMIT N|none",
        pattern=rf"limit {NAME} {LIMIT} {AMOUNT}{ACTION}",
        method="PATCH",
        path="/tenants/{name}/limits",
        body={"{limit}": "{amount}"},
        asks="set {limit} of {name}, all keys together, to {amount}",
    ),
    Form(
        usage="class NAME CLASS",
        pattern=rf"class {NAME} {ONE_OF}",
        method="PATCH",
        path="/tenants/{name}",
        body={"priority_class": "{one}"},
        asks="put {name} into the class {one}: interactive goes before standard, standard before batch",
    ),
    Form(
        usage="weight NAME WEIGHT",
        pattern=rf"weight {NAME} {WEIGHT}",
        method="PATCH",
        path="/tenants/{name}",
        body={"weight": "{weight}"},
        asks="give {name} the weight {weight} among the tenants of its class",
    ),
    Form(
        usage="wait NAME MS|none",
        pattern=rf"wait {NAME} {AMOUNT}",
        method="PATCH",
        path="/tenants/{name}",
        body={"max_wait_ms": "{amount}"},
        asks="let requests of {name} wait at most {amount} ms: none is as long as the engine lets any",
    ),
    Form(
        usage="late NAME ACTION",
        pattern=rf"late {NAME} {ONE_OF}",
        method="PATCH",
        path="/tenants/{name}",
        body={"late_action": "{one}"},
        asks="set what is done with requests of {name} that cannot meet their TTFT target: {one}",
    ),
    Form(
        usage="cost NAME SHARE|none",
        pattern=rf"cost {NAME} {SHARE}",
        method="PATCH",
        path="/tenants/{name}",
        body={"max_tbt_cost_ratio": "{share}"},
        asks="let the TBT target of {name} cost at most {share} of the prefill time: none is any share",
    ),
    Form(
        usage="key limit ID LIMIT N|none",
        pattern=rf"key limit {ID} {LIMIT} {AMOUNT}{ACTION}",
        method="PATCH",
        path="/keys/{id}/limits",
        body={"{limit}": "{amount}"},
        asks="set {limit} of the key {id} to {amount}",
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
    words, why = " ".join(typed.split()), None
    if because := BECAUSE.fullmatch(words):
        words, why = because["change"], because["why"]
    for form in FORMS:
        found = re.fullmatch(form.pattern, words)
        if found is not None:
            parts = found.groupdict(default="")
            body = {key.format(**parts): _filled(value, parts) for key, value in form.body.items()}
            return Change(
                method=form.method,
                path=form.path.format(**parts),
                body=None if form.method == "DELETE" else body,
                asks=form.asks.format(**parts) + (f", then {parts['action']}" if parts.get("action") else ""),
                why=why,
            )
    return None


def usage_lines(typed: str, width: int) -> list[Line]:
    """The forms that what was typed may become."""
    words = typed.split()
    fitting = [form for form in FORMS if _may_become(form, words)]
    return [
        fit(
            line(
                (f"{form.usage:<26} ", Role.STRONG), (form.asks.split(":")[0].format_map(_Names()), Role.DIM)
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
    match value:
        case "{number}":
            return int(parts["number"])
        case "{weight}":
            return float(parts["weight"])
        case "{share}":
            return None if parts["share"] == "none" else float(parts["share"])
        case "{amount}" if parts["amount"] == "none":
            return None
        case "{amount}" if "limit" not in parts:
            return int(parts["amount"])
        case "{amount}":
            action = {"action": parts["action"]} if parts["action"] else {}
            return {"value": int(parts["amount"]), **action}
        case str():
            return value.format(**parts)
        case _:
            return value
