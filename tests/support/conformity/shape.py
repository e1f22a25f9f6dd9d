"""What of an answer can be compared between engines: its form and its facts, not its words.

A form is what JSON looks like without its values: members by name, `text`, `number`, `bool` or `null` at the
leaves, a list as its members' form in a list of one. A member that is null counts as one that is absent:
clients read both as None.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import jsonschema_rs

from conformity.case import Case

TOLD_HEADERS = ("allow", "retry-after", "www-authenticate")
BY_TOKEN = ("top_logprobs",)
"""Members of /v1/completions that hold an object by token: its keys are the model's."""
BY_SCHEMA = ("input", "parameters", "input_schema", "schema", "schema_")
"""Members that hold what the client sent, or what a schema says."""
DONE = "[DONE]"

Shape = dict[str, Any]


def shape_of(case: Case, answer: httpx.Response, model: str) -> Shape:
    """The shape of an answer."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    shape: Shape = {"status": answer.status_code, "content_type": kind}
    headers = [name for name in TOLD_HEADERS if name in answer.headers]
    if headers:
        shape["headers"] = headers
    if kind == "text/event-stream":
        return shape | _of_stream(case, answer.text)
    try:
        body = answer.json()
    except ValueError:
        return shape | {"body": "no JSON" if answer.content else "empty"}
    if answer.status_code >= 400:
        return shape | {"body": form(body), "error": _of_error(body)}
    return shape | {"body": form(body)} | _facts(case, body, model)


def form(value: Any, name: str = "") -> Any:
    """The form of a value."""
    if isinstance(value, Mapping):
        if name in BY_SCHEMA:
            return "object"
        if name in BY_TOKEN and "token" not in value:
            return {"*": _joined([form(each) for each in value.values()])}
        return {key: form(each, key) for key, each in sorted(value.items()) if each is not None}
    if name == "bytes":  # of a token, which may be none
        return "bytes"
    if isinstance(value, list):
        return [_joined([form(each, name) for each in value])] if value else []
    if value is None or isinstance(value, bool):
        return "null" if value is None else "bool"
    return "text" if isinstance(value, str) else "number"


def _joined(forms: Sequence[Any]) -> Any:
    """One form for all of them."""
    distinct = [each for i, each in enumerate(forms) if each not in forms[:i]]
    if len(distinct) == 1:
        return distinct[0]
    if all(isinstance(each, dict) for each in distinct):
        names = sorted({name for each in distinct for name in each})
        return {name: _joined([each.get(name, "absent") for each in distinct]) for name in names}
    if all(isinstance(each, str) for each in distinct):
        return "|".join(sorted({part for each in distinct for part in each.split("|")}))
    if all(isinstance(each, list) for each in distinct):
        return [_joined([each[0] for each in distinct if each])]
    return " or ".join(sorted({part for each in distinct for part in _parts(each)}))


def _parts(form: Any) -> list[str]:
    if isinstance(form, str):
        return form.replace(" or ", "|").split("|")
    return [json.dumps(form, sort_keys=True)]


def _of_error(body: Any) -> Shape:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return {"type": "no error object"}
    return {name: error.get(name) for name in ("type", "param", "code")}


def _of_stream(case: Case, text: str) -> Shape:
    """The kinds of events in their order, each kind's form, and what they say together."""
    kinds: list[str] = []
    forms: dict[str, list[Any]] = {}
    events: list[dict[str, Any]] = []
    for data in _data_of(text):
        if data == DONE:
            kinds.append(DONE)
            continue
        event = json.loads(data)
        events.append(event)
        kind = _kind(event)
        forms.setdefault(kind, []).append(form(event))
        if not _is_of_another_choice(event) and kind not in kinds[-1:]:
            kinds.append(kind)
    said: Shape = {"events": kinds, "forms": {kind: _joined(each) for kind, each in sorted(forms.items())}}
    error = next((_of_error(event) for event in events if event.get("error")), None)
    if error is not None:
        said["error"] = error
    return said | _facts_of_stream(case, events)


def _data_of(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


def _kind(event: Mapping[str, Any]) -> str:
    """What an event is for: its type, or what its choice says."""
    if "type" in event:
        return str(event["type"])
    if "choices" not in event:
        return "error" if "error" in event else "result"
    if not event["choices"]:
        return "usage" if event.get("usage") else "no choice"
    choice = event["choices"][0]
    delta = choice.get("delta", {})
    said = [name for name in ("role", "tool_calls") if delta.get(name)]
    ended = ["finish"] if choice.get("finish_reason") else []
    return "+".join([*said, *ended]) or "content"


def _is_of_another_choice(event: Mapping[str, Any]) -> bool:
    choices = event.get("choices") or [{}]
    return bool(choices[0].get("index") or event.get("index"))


def _facts(case: Case, body: Any, model: str) -> Shape:
    """What a whole answer says: choices, ends, usage, and whether its text is what was asked for."""
    if not isinstance(body, dict):
        return {"results": len(body)} if isinstance(body, list) else {}
    facts: Shape = {}
    if "model" in body:
        facts["is_own_model"] = body["model"] == model
    texts: list[str] = []
    if "choices" in body:
        choices = body["choices"]
        facts["finish"] = [choice["finish_reason"] for choice in choices]
        for choice in choices:
            message = choice.get("message", {})
            texts.append(choice.get("text") or message.get("content") or "")
            texts += [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    elif body.get("object") == "response":
        facts["finish"] = [body["status"], body.get("incomplete_details")]
        facts["output"] = [item["type"] for item in body["output"]]
        for item in body["output"]:
            texts += [part["text"] for part in item.get("content") or () if "text" in part]
            texts += [item["arguments"]] if "arguments" in item else []
    elif body.get("type") == "message":
        facts["finish"] = [body["stop_reason"]]
        facts["output"] = [part["type"] for part in body["content"]]
        for part in body["content"]:
            texts.append(part["text"] if "text" in part else json.dumps(part.get("input")))
    elif "meta_info" in body:
        facts["finish"] = [(body["meta_info"]["finish_reason"] or {}).get("type")]
        texts.append(body["text"])
    return facts | _of_texts(case, texts) | _of_usage(body.get("usage"), facts.get("finish"))


def _of_texts(case: Case, texts: Sequence[str]) -> Shape:
    said: Shape = {}
    if case.begins is not None:
        said["begins"] = all(text.startswith(case.begins) for text in texts)
    if case.schema is not None:
        said["fits_schema"] = any(_fits(text, case.schema) for text in texts)
    return said


def _fits(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        return bool(jsonschema_rs.is_valid(schema, json.loads(text)))
    except ValueError:
        return False


def _of_usage(usage: Mapping[str, Any] | None, finish: Any) -> Shape:
    """Whether it adds up; how many tokens were made where a limit ended the answer."""
    if not usage:
        return {}
    put_in = usage.get("prompt_tokens", usage.get("input_tokens"))
    put_out = usage.get("completion_tokens", usage.get("output_tokens"))
    total = usage.get("total_tokens", (put_in or 0) + (put_out or 0))
    said: Shape = {"usage_adds_up": bool(put_in) and total == put_in + put_out}
    if finish is not None and set(map(str, finish)) <= {"length", "max_tokens"}:
        said["output_tokens"] = put_out
    return said


def _facts_of_stream(case: Case, events: Sequence[Mapping[str, Any]]) -> Shape:
    finish: dict[int, Any] = {}
    text, arguments = "", ""
    usage: Mapping[str, Any] | None = None
    for event in events:
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            index = choice["index"]
            if choice.get("finish_reason"):
                finish[index] = choice["finish_reason"]
            delta = choice.get("delta", {})
            text += "" if index else (choice.get("text") or delta.get("content") or "")
            for call in delta.get("tool_calls") or ():
                arguments += call.get("function", {}).get("arguments") or ""
        if event.get("type") == "response.output_text.delta":
            text += event["delta"]
        if event.get("type") == "message_delta":
            finish[0] = event["delta"]["stop_reason"]
        if str(event.get("type")) in ("response.completed", "response.incomplete"):
            finish[0], usage = event["response"]["status"], event["response"]["usage"]
        if "meta_info" in event:
            text, reason = event["text"], event["meta_info"]["finish_reason"]
            finish[event.get("index", 0)] = (reason or {}).get("type")
    ends = [finish[index] for index in sorted(finish)]
    facts: Shape = {"finish": ends} if ends else {}
    openai_usage = usage if usage and ("total_tokens" in usage) else None
    return facts | _of_texts(case, [arguments or text]) | _of_usage(openai_usage, ends)
