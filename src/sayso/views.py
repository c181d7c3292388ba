"""Convert rows to what people see: a ``Call`` to a ``Request``, and a ``Request`` to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from sayso import codec
from sayso.engine.asking import doubt_digest
from sayso.engine.effects import is_remote, shown_key
from sayso.engine.grants import facts_of
from sayso.rows import Call, CallStatus, Credential, Person, Tool
from sayso.text import inline
from sayso.types import (
    DecisionMade,
    EarlierRejection,
    Evidence,
    Execution,
    Json,
    Micros,
    Opinion,
    Question,
    Request,
    RequestKind,
    RequestStatus,
    Vote,
    VoteMade,
    iso,
    moment,
    requester_name,
)

T = TypeVar("T")
APPROVED = (
    *(CallStatus.READY, CallStatus.RUNNING, CallStatus.RELEASED),
    *(CallStatus.DONE, CallStatus.FAILED),
)
_CLOSED_BY: dict[str, RequestStatus] = {"reject": "rejected", "respond": "responded"}


def question_json(question: Question) -> dict[str, Json]:
    """Return a question as the JSON that people are shown."""
    options = [{**_json_of(option), "value": option.answer} for option in question.options]
    return {**_json_of(question), "options": options, "free_text": bool(question.free_text)}


def stored_question(question: Question) -> dict[str, Json]:
    """Return a question as it is stored and hashed, with the order of its form's fields."""
    question_fields = question_json(question)
    return {**question_fields, "schema": keep_field_order(question_fields["schema"])}


def question_from(value: Mapping[str, Any]) -> Question:
    return _object_from(Question, {**value, "schema": restore_field_order(value["schema"])})


def content_of(call: Call) -> dict[str, Any]:
    """Return what people are shown of a call: its arguments, or the question."""
    args: dict[str, Any] = codec.loads(call.args)
    return question_json(question_from(args)) if call.kind == "question" else args


def public_status(call: Call) -> RequestStatus:
    """Return the status of the request; that of the execution is separate."""
    held = call.decision if call.status is CallStatus.ASKED else None
    if call.status in (CallStatus.ASKED, CallStatus.IN_DOUBT) and held is None:
        return "pending"
    if held is not None and held.type in _CLOSED_BY:
        return _CLOSED_BY[held.type]
    if call.status in APPROVED or held is not None:
        return "edited" if call.original is not None else "approved"
    return cast(RequestStatus, str(call.status))


def is_request(call: Call) -> bool:
    """Return whether people were, or are, asked about this call."""
    return call.asked or call.status is CallStatus.IN_DOUBT


def request_of(
    call: Call,
    tool: Tool | None,
    clock: Callable[[], Micros],
    refusals: tuple[EarlierRejection, ...] = (),
) -> Request:
    """Return a call as people see it. ``clock`` is the store's; it is read for calls in doubt."""
    in_doubt = call.status is CallStatus.IN_DOUBT
    attempt_running = in_doubt and call.attempt_runs(clock())
    args = codec.loads(call.args)
    question = question_from(args) if call.kind == "question" else None
    schema = codec.loads(tool.schema)["parameters"] if tool is not None else None
    terms = call.terms
    doubt = call.doubt
    evidence = None
    if doubt is not None and doubt.answer:
        evidence = Evidence(doubt.answer, doubt.said, moment(doubt.at))
    return Request(
        id=call.id,
        kind="in_doubt" if in_doubt else cast(RequestKind, call.kind),
        status=public_status(call),
        agent=call.agent,
        run=call.run,
        thread=call.thread,
        tool=call.tool or None,
        args={} if question else _as_declared(args, schema),
        schema=question.schema if question else schema,
        question=question,
        title=call.title,
        description=terms.description or (tool.description if tool is not None else ""),
        note=call.note,
        preview=codec.loads(call.preview) if call.preview else None,
        digest=doubt_digest(call.digest, call.attempt) if in_doubt else call.digest,
        revision=call.rev,
        allowed=doubt_answers(attempt_running) if in_doubt else terms.decisions,
        reviewers=call.reviewers if call.escalated else terms.reviewers,
        quorum=terms.quorum,
        votes=tuple(map(_vote_made, call.votes)),
        risk=terms.risk,
        rule=terms.rule,
        requester=requester_name(call.requester),
        created_at=moment(call.created),
        expires_at=None if in_doubt or call.expires_at is None else moment(call.expires_at),
        decision=None if in_doubt else decision_made(call),
        execution=_execution(call, attempt_running),
        original=None if call.original is None else codec.loads(call.original),
        written=None if call.written is None else _as_declared(codec.loads(call.written), schema),
        requester_decides=terms.requester_decides,
        assurance=terms.assurance,
        effect=terms.effect,
        effect_key=shown_key(call.effect_key),
        binds=facts_of(call) if call.binds else None,
        evidence=evidence,
        plan=terms.plan,
        opinion=_opinion(call) if terms.opinion else None,
        remote=bool(call.binds) and is_remote(call.binds),
        notify=terms.notify,
        notify_via=terms.notify_via,
        escalates_at=None if in_doubt or call.escalates_at is None else moment(call.escalates_at),
        escalate_to=terms.escalate_to,
        escalated=call.escalated,
        overturn=terms.overturn,
        refusals=refusals,
    )


def _opinion(call: Call) -> Opinion | None:
    """Return what a model says of a request, if that is still about what people see."""
    answer, reason, digest = call.terms.opinion
    return Opinion(call.terms.reviewer, answer, reason) if digest == call.digest else None


def _vote_made(vote: Vote) -> VoteMade:
    return VoteMade(
        type=vote.type,
        by=vote.by,
        at=moment(vote.at),
        assurance=vote.assurance,
        on_behalf_of=vote.on_behalf_of,
    )


#: How many references and optional types lead to the fields of one value.
_HOPS = 8


def _as_declared(args: dict[str, Json], schema: Mapping[str, Any] | None) -> dict[str, Json]:
    """Put the arguments in the order of the tool's parameters; stored JSON is sorted."""
    properties = (schema or {}).get("properties", {})
    ordered: dict[str, Json] = {}
    for name in properties:
        if name in args:
            if args[name].__class__ in (dict, list):
                args[name] = _ordered(args[name], properties[name], schema or {})
            ordered[name] = args[name]
    return ordered | args


def _ordered(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    """Put the fields of a value in the order of its schema, at any depth."""
    for _ in range(_HOPS):
        if not isinstance(schema, Mapping) or not isinstance(value, (dict, list)):
            return value
        choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
        if "$ref" in schema:
            schema = root.get("$defs", {}).get(str(schema["$ref"]).removeprefix("#/$defs/"))
        elif len(choices) == 1:
            (schema,) = choices
        else:
            break
    else:
        return value
    if isinstance(value, list):
        return [_ordered(item, schema.get("items"), root) for item in value]
    properties = schema.get("properties", {})
    ordered = {
        name: _ordered(value[name], properties[name], root) for name in properties if name in value
    }
    return ordered | {name: item for name, item in value.items() if name not in ordered}


def converted_arguments(request: Request) -> dict[str, Json]:
    """Return the written arguments of which a framework's validators made others.

    Defaults that were added are not among them: people see those in ``args``.
    """
    written = request.written or {}
    args = request.args
    return {n: value for n, value in written.items() if n not in args or args[n] != value}


def framework_arguments(request: Request) -> dict[str, Json]:
    """Return the arguments that a framework's own prompts show and send back after an edit: with
    every default, or as the model wrote them if validators convert them."""
    return dict(request.editable if converted_arguments(request) else request.args)


def decision_made(call: Call) -> DecisionMade | None:
    """Return the decision on a call, with its values parsed."""
    decided = call.decision
    if decided is None:
        return None
    return DecisionMade(
        type=decided.type,
        by=decided.by,
        at=moment(decided.at),
        channel=decided.channel,
        assurance=decided.assurance,
        source=call.source,
        grant=call.grant or "",
        on_behalf_of=decided.on_behalf_of,
        message=decided.message,
        args=None if call.original is None else codec.loads(call.args),
        value=None if decided.value is None else codec.loads(decided.value),
        stop=decided.stop,
        shown=codec.loads(decided.claim) if decided.claim else None,
        undo_until=moment(decided.not_before) if call.status is CallStatus.ASKED else None,
    )


def doubt_answers(attempt_running: bool) -> tuple[str, ...]:
    """Return what people may decide about a call in doubt: it runs again only once it has ended."""
    return ("respond", "reject") if attempt_running else ("approve", "respond", "reject")


def _execution(call: Call, attempt_running: bool) -> Execution:
    started = call.status in (*APPROVED, CallStatus.IN_DOUBT)
    result: Json = None
    if call.status is CallStatus.IN_DOUBT:
        result = None if call.doubt is None else call.doubt.reason
    elif call.result is not None:
        # For these, it is a text: why the call failed, was cancelled, or (a read) is to be retried.
        is_text = call.status in (CallStatus.FAILED, CallStatus.CANCELLED, CallStatus.READY)
        result = call.result if is_text else codec.loads(call.result)
    has_result = call.status is not CallStatus.DONE or call.result is not None
    status = str(call.status) if started else "none"
    return Execution(status, call.attempt, result, has_result, attempt_running)


# -- requests as JSON: ``sayso.types`` says which fields there are, and this follows it


def request_json(request: Request) -> dict[str, Json]:
    """Return a request as JSON, with the same fields as in Python."""
    body: dict[str, Json] = _json_of(request)
    if request.question is not None:
        body["question"] = question_json(request.question)
    if request.decision is not None:
        body["decision"] = decision_json(request.decision)
    if request.execution.kept:
        del body["execution"]["kept"]
    if request.kind != "in_doubt":
        del body["execution"]["attempt_running"]
    return body


def decision_json(decision: DecisionMade) -> dict[str, Json]:
    """Return a decision as JSON, without the fields that its type does not have or need."""
    body = _json_of(decision)
    optional = ("on_behalf_of", "message", "stop", "undo_until", "shown")
    left_out = {name for name in optional if not body[name]}
    if decision.args is None:
        left_out.add("args")
    if decision.type != "respond":
        left_out.add("value")
    return {name: value for name, value in body.items() if name not in left_out}


#: Fields that may be left out of a request's JSON where they are empty, and have no default.
_EMPTY: dict[str, Json] = {
    **dict.fromkeys(("agent", "title", "description", "note", "rule", "requester"), ""),
    **dict.fromkeys(("tool", "question", "preview", "expires_at", "decision"), None),
    **dict.fromkeys(("reviewers", "votes"), ()),
    "execution": {"status": "none", "attempts": 0},
}


def request_from(body: Mapping[str, Any]) -> Request:
    """Return the request that ``request_json`` described; empty fields may be left out.

    ``digest`` is empty if a server masked something.
    """
    request = {**_EMPTY, "args": {}, **body, "digest": body["digest"] or ""}
    form = (body.get("question") or {}).get("schema")
    request.setdefault("schema", restore_field_order(form))
    return _object_from(Request, request)


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass that people see."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in fields(kind) if field.repr}


def _json_of(value: Any) -> Any:
    # A framework's requests have more fields, with types that only it knows.
    kind: Any = Request if isinstance(value, Request) else type(value)
    if is_dataclass(value):
        return {name: _json_of(getattr(value, name)) for name in _types_of(kind)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_json_of(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _object_from(kind: Callable[..., T], body: Mapping[str, Any]) -> T:
    values = {
        name: _value_from(type_, body[name])
        for name, type_ in _types_of(kind).items()
        if name in body
    }
    return kind(**values)


def _value_from(kind: Any, value: Any) -> Any:
    """Return a value of a field's type. What JSON has no type for is converted."""
    kind, *others = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    if value is None and others:
        return None
    if kind is datetime:
        return datetime.fromisoformat(value)
    if kind is Question:
        return question_from(value)
    if is_dataclass(kind):
        return _object_from(cast(type, kind), value)
    if get_origin(kind) is tuple:
        return tuple(_value_from(get_args(kind)[0], item) for item in value)
    return value


# -- the order of a form's fields
#
# Stored JSON is sorted, so the order in which the author wrote the fields is noted in the schema.

FIELD_ORDER = "x-sayso-order"

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = ("items", "additionalProperties", "not", "if", "then", "else", "contains")


def keep_field_order(schema: Any) -> Any:
    """Note the order of its fields in a schema, where that is not the sorted order."""
    try:
        return _each(schema, _note_order)
    except RecursionError:  # storing it fails too, with a better message
        return schema


def restore_field_order(schema: Any) -> Any:
    """Put the fields of a schema in the order noted in it, and remove the notes."""
    return _each(schema, _restore_order)


def _each(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Apply a change to a schema and to all schemas inside it."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            changed[key] = {name: _each(item, change) for name, item in value.items()}
        elif key in _LISTS and isinstance(value, list):
            changed[key] = [_each(item, change) for item in value]
        elif key in _ONES:
            changed[key] = _each(value, change)
    return change(changed)


def _note_order(node: dict[str, Any]) -> dict[str, Any]:
    fields = node.get("properties")
    names = [name for name in fields if isinstance(name, str)] if isinstance(fields, dict) else []
    return node if names == sorted(names) else {**node, FIELD_ORDER: names}


def _restore_order(node: dict[str, Any]) -> dict[str, Any]:
    names = node.get(FIELD_ORDER)
    fields = node.get("properties")
    if not isinstance(names, list) or not isinstance(fields, dict):
        return node
    order = [name for name in names if isinstance(name, str) and name in fields]
    ordered = {name: fields[name] for name in (*order, *fields)}
    return {
        key: ordered if key == "properties" else node[key] for key in node if key != FIELD_ORDER
    }


# -- people


def person_json(person: Person) -> dict[str, Any]:
    """Return a person or an agent as JSON."""
    return {
        "name": inline(person.name),
        "kind": person.kind,
        "role": person.role,
        "groups": [inline(group) for group in person.groups],
        "mail": inline(person.mail),
        "origin": inline(person.origin),
        "status": person.status,
        "created_at": iso(person.created),
        "changed_at": iso(person.changed),
        "stand_in": inline(person.stand_in) or None,
        "away_until": iso(person.away_until),
    }


def device_of(credential: Credential) -> str:
    """Return what people may see of ``Credential.device``: no secret of a subscription."""
    if credential.kind == "push":
        return str(json.loads(credential.device)[0])
    if credential.kind in ("chat", "code"):
        return " ".join(part for part in json.loads(credential.device) if part)
    return credential.device


def credential_json(credential: Credential) -> dict[str, Any]:
    """Return a token, link, session or passkey as JSON. Its secret is not stored."""
    device = device_of(credential)
    place = ""
    if credential.kind == "session" and " at " in device:
        device, _, place = device.rpartition(" at ")
    return {
        "id": credential.id,
        "person": inline(credential.person),
        "kind": credential.kind,
        "role": credential.role,
        "assurance": credential.assurance,
        "opened_by": credential.opened_by or None,
        "device": inline(device),
        "place": inline(place),
        "created_at": iso(credential.created),
        "signed_in_at": iso(credential.signed_in or None),
        "last_used_at": iso(credential.last_used),
        "ends_at": iso(credential.valid_until),
        "revoked_at": iso(credential.revoked),
    }
