"""What graphs show with ``interrupt(value)``, and the answers that such values take.

Three shapes say what they take: LangChain's middleware (``action_requests``), the agent inbox
(``action_request`` with ``config``), and a question with its options, its fields or a schema. Any
other value says nothing of its answer, so any JSON will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import Interrupt

from sayso import codec, schema
from sayso.adapters.langchain._answers import forms, object_of
from sayso.errors import InvalidCall
from sayso.types import Json, Option, Question

_TEXTS = ("question", "text", "message", "description")
_TYPES = {"str": "string", "text": "string", "int": "integer", "float": "number"}
_TYPES |= {"bool": "boolean", "list": "array", "dict": "object"}
_KNOWN = ("string", "integer", "number", "boolean", "array", "object")
_SCHEMAS = ("response_schema", "json_schema", "schema")
_SAYS = {"type", "properties", "enum", "oneOf", "anyOf", "$ref"}
_OTHERS = ("free_text", "allow_free_text", "allow_other")
_ANYTHING: dict[str, Any] = {"schema": {}, "free_text": True}
_SEVERAL = ("multiple", "allow_multiple", "multi_select")


def question_of(interrupt: Interrupt) -> Question:
    """A text as it is, of anything else what it says and then all of it; with its answers."""
    value = interrupt.value
    text = _text(value)
    rules = interrupt.response_schema
    try:
        takes = {"schema": rules} if isinstance(rules, dict) else _taken(value)
        schema.check_schema(takes.get("schema", {}))
        return Question(text, **takes)
    except InvalidCall:  # it was meant otherwise
        return Question(text, **_ANYTHING)


def refusal(value: Any, message: str) -> Any:
    """What an interrupt is given if nobody will answer; nothing, if it takes no refusal."""
    no = {"type": "reject", "message": message}
    turn, inbox = _turn(value), _inbox(value)
    if turn is not None:
        refused = all("reject" in allowed for _, allowed in turn)
        return {"decisions": [no] * len(turn)} if refused else None
    if inbox is None:
        return no
    said = [_ignored(config, message) for _, config in inbox]
    return None if None in said else said


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    first = value[0] if isinstance(value, list) and value else value
    words = first if isinstance(first, Mapping) else {}
    said = [words[name] for name in _TEXTS if isinstance(words.get(name), str)]
    try:
        whole = codec.canonical(value).decode()
    except InvalidCall:
        whole = repr(value)
    return "\n\n".join([*said[:1], whole])


def _taken(value: Any) -> dict[str, Any]:
    """What a question about this value takes."""
    turn, inbox = _turn(value), _inbox(value)
    if turn is not None:
        each = [{"oneOf": forms(name, {"type": "object"}, allowed)} for name, allowed in turn]
        return {"schema": object_of(decisions=_list_of(each))}
    if inbox is not None:
        return {"schema": _replies(value, inbox)}
    return _asked(value) if isinstance(value, Mapping) else _ANYTHING


# -- LangChain's middleware, which a wrong answer would leave stuck for good


def _turn(value: Any) -> list[tuple[str, Sequence[str]]] | None:
    """The tools of a turn that LangChain's own middleware asks about, and what it allows."""
    try:
        allowed = {c["action_name"]: c["allowed_decisions"] for c in value["review_configs"]}
        asked = [(made["name"], allowed[made["name"]]) for made in value["action_requests"]]
        can = all(forms(name, {}, decisions) for name, decisions in asked)
    except (TypeError, KeyError, IndexError):
        return None
    return asked if asked and can else None


# -- the agent inbox: one reply for each request, in a list


def _inbox(value: Any) -> list[tuple[str, Mapping[str, Any]]] | None:
    """The actions that it shows, and what may be said to each."""
    listed = value if isinstance(value, list) else [value]
    try:
        asked = [(str(one["action_request"]["action"]), one["config"]) for one in listed]
        can = all(any(config.get(name) for name in _REPLIES) for _, config in asked)
    except (TypeError, KeyError, IndexError, AttributeError):
        return None
    return asked if asked and can else None


_REPLIES = {
    "allow_accept": "accept",
    "allow_edit": "edit",
    "allow_respond": "response",
    "allow_ignore": "ignore",
}


def _replies(value: Any, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    each = [{"oneOf": _reply(action, config)} for action, config in asked]
    # A single request may also be answered without the list around it.
    listed = _list_of(each)
    return listed if isinstance(value, list) else {"anyOf": [*each, listed]}


def _reply(action: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    edited = object_of(action={"const": action}, args={"type": "object"})
    args: dict[str, dict[str, Any]] = {"edit": {"args": edited}, "response": {"args": {}}}
    can = [reply for name, reply in _REPLIES.items() if config.get(name)]
    return [object_of(type={"const": reply}, **args.get(reply, {})) for reply in can]


def _ignored(config: Mapping[str, Any], message: str) -> dict[str, Json] | None:
    if config.get("allow_ignore"):
        return {"type": "ignore", "args": None}
    said = message or "Nobody will answer this."
    return {"type": "response", "args": said} if config.get("allow_respond") else None


def _list_of(each: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": each, "minItems": len(each), "maxItems": len(each)}


# -- questions of people's own nodes


def _asked(value: Mapping[Any, Any]) -> dict[str, Any]:
    for name in _SCHEMAS:
        rules = value.get(name)
        if isinstance(rules, dict) and set(rules) & _SAYS:
            return {"schema": rules}
    fields = _fields(value.get("fields"))
    if fields is not None:
        return {"schema": fields}
    options = value.get("options", value.get("choices"))
    if not isinstance(options, list | tuple) or len(options) < 2:
        return _ANYTHING
    return {
        "options": [_option(one) for one in options],
        "multiple": any(value.get(name) is True for name in _SEVERAL),
        "free_text": any(value.get(name) is True for name in _OTHERS),
    }


def _option(one: Any) -> Option:
    if not isinstance(one, Mapping):
        return Option(one) if isinstance(one, str) else Option(codec.canonical(one).decode(), one)
    names = [one[name] for name in ("label", "title", "name", "text") if name in one]
    answers = [one[name] for name in ("value", "id") if name in one]
    if not names and not answers:
        raise InvalidCall("neither a label nor a value", "options")
    label, answer = str([*names, *answers][0]), [*answers, None][0]
    return Option(label, answer, str(one.get("description") or ""))


def _fields(given: Any) -> dict[str, Any] | None:
    """An object with these fields; nothing, unless each says its name and what it is."""
    if isinstance(given, Mapping):
        given = [
            {**(spec if isinstance(spec, Mapping) else {"type": spec}), "name": name}
            for name, spec in given.items()
        ]
    if not isinstance(given, list) or not given:
        return None
    if not all(isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in given):
        return None
    rules = {one["name"]: _field(one) for one in given}
    if not all(rules.values()):
        return None
    free = {one["name"] for one in given if one.get("required") is False or "default" in one}
    return {"type": "object", "properties": rules, "required": [n for n in rules if n not in free]}


def _field(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one field, as far as it says it."""
    kind = spec.get("type")
    named = _TYPES.get(str(kind), kind)
    rules: dict[str, Any] = {"type": named} if named in _KNOWN else {}
    options = spec.get("options", spec.get("choices", spec.get("enum")))
    if isinstance(options, list) and options:
        rules["enum"] = [_option(one).answer for one in options]
    if "default" in spec and rules:
        rules["default"] = spec["default"]
    said = spec.get("description", spec.get("label"))
    if isinstance(said, str) and rules:
        rules["description"] = said
    return rules
