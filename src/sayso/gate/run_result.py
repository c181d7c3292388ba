"""The result of a run, and the run's state while the caller decides.

``RunState`` names a run and its store, lists the open requests, and stages decisions that
``resume`` will write. It contains no conversation: see
``docs/decisions/0015-run-state-holds-no-conversation.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from sayso import codec
from sayso.errors import Conflict, InvalidCall, InvalidDecision, KeyMissing, NotFound, Tampered
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.sync import read
from sayso.types import (
    NO_ARGS,
    Approve,
    Decision,
    Edit,
    Json,
    Reject,
    Request,
    Respond,
    Reviewer,
    suggests_names,
)
from sayso.views import request_from, request_json, stored_question

VERSION = 1

ResultStatus: TypeAlias = Literal["paused", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class StagedDecision:
    """A decision that has not been written yet."""

    decision: Decision
    by: str
    #: Also approves future calls like this one: see ``Inbox.decide``.
    grant: Mapping[str, Any] | None = None


@dataclass(slots=True)
class RunState:
    """A run and its store, its open requests, and the decisions staged for ``resume``."""

    run: str
    thread: str
    agent: str
    store: Store | None = field(default=None, repr=False)
    incarnation: str = field(default="", repr=False)
    interruptions: tuple[Request, ...] = ()
    staged: list[StagedDecision] = field(default_factory=list)
    #: The text this state was read from and its signature, which the store verifies.
    exported: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.store is not None:
            self.incarnation = self.store.incarnation

    def approve(
        self,
        request: Request | str,
        *,
        by: str = "user",
        grant: Mapping[str, Any] | None = None,
    ) -> None:
        """Stage an approval of exactly what the request shows.

        ``grant`` also approves future calls like it, as in ``Inbox.approve``.
        """
        self._stage(self._known(request).approve(), by, grant)

    @suggests_names
    def edit(
        self,
        request: Request | str,
        args: Mapping[str, Json] = NO_ARGS,
        *,
        unset: Iterable[str] = (),
        by: str = "user",
    ) -> None:
        """Stage an approval with these arguments changed, and those in ``unset`` removed."""
        self._stage(self._known(request).edit(args, unset=unset), by)

    @suggests_names
    def reject(
        self, request: Request | str, message: str = "", *, stop: bool = False, by: str = "user"
    ) -> None:
        """Stage a rejection with an optional reason. With ``stop``, it also cancels the run."""
        self._stage(self._known(request).reject(message, stop=stop), by)

    @suggests_names
    def respond(self, request: Request | str, value: Json, *, by: str = "user") -> None:
        """Stage an answer, or a result to use instead of running the call."""
        self._stage(self._known(request).respond(value), by)

    def _known(self, request: Request | str) -> Request:
        request_id = request if isinstance(request, str) else getattr(request, "id", None)
        for interruption in self.interruptions:
            if interruption.id == request_id:
                return interruption if isinstance(request, str) else request
        raise NotFound(f"{request_id!r} is not an open request of run {self.run}")

    def _stage(self, decision: Decision, by: str, grant: Mapping[str, Any] | None = None) -> None:
        """Stage a decision, replacing an earlier one for the same request."""
        self.staged = [s for s in self.staged if s.decision.request != decision.request]
        self.staged.append(StagedDecision(decision, by, grant))

    def to_json(self) -> str:
        """Return the state as signed text. Raises ``KeyMissing`` if the store cannot sign."""
        if self.store is None:
            raise KeyMissing(
                "this state was read from text: pass it to agent.resume, then export the next one"
            )
        if self.store.keys.is_ephemeral:
            raise KeyMissing(
                "a memory:// store has no lasting key, so its states cannot be exported: "
                "use sqlite:///, or set SAYSO_KEY"
            )
        body = codec.canonical(
            {
                "version": VERSION,
                "store": self.incarnation,
                "run": self.run,
                "thread": self.thread,
                "agent": self.agent,
                "open": [_request_to_json(request) for request in self.interruptions],
                "staged": [_staged_to_json(staged) for staged in self.staged],
            }
        ).decode()
        return codec.dumps({"state": body, "signature": self.store.keys.sign(body.encode())})

    def __reduce__(self) -> Any:
        raise TypeError(
            "a RunState cannot be pickled, because it holds an open store: use state.to_json(), "
            "and sayso.RunState.from_json(text) in the other process"
        )

    @classmethod
    def from_json(cls, text: str, store: Store | None = None) -> RunState:
        """Read a state. Raises ``Tampered`` if the text was not written by ``to_json``.

        ``resume`` verifies the signature. Pass ``store`` to verify it now; the state can then be
        exported again.
        """
        try:
            outer = codec.parse(text)
            body = codec.parse(outer["state"])
            if not isinstance(outer["signature"], str):
                raise TypeError("a signature is text")
            version = body["version"]
            if type(version) is not int or version != VERSION:
                raise Conflict(
                    f"this state does not have version {VERSION}, the only one supported: resume "
                    "by thread instead"
                )
            run = body["run"]
            thread = body["thread"]
            state = cls(
                run=run,
                thread=thread,
                agent=body["agent"],
                incarnation=body["store"],
                interruptions=tuple(_request_from_json(r, run, thread) for r in body["open"]),
                staged=[_staged_from_json(s) for s in body["staged"]],
                exported=(outer["state"], outer["signature"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, InvalidCall, InvalidDecision):
            raise Tampered("this is not a run state that to_json() wrote") from None
        if store is not None:
            state.check(store, state.agent)
            state.store = store
        return state

    def check(self, store: Store, agent: str) -> None:
        """Raise if the state belongs to another store or agent, or was changed after export."""
        if self.incarnation != store.incarnation:
            raise Conflict("this state belongs to another store: open the one it came from")
        if self.agent != agent:
            raise Conflict(f"this state belongs to agent {self.agent!r}, not to {agent!r}")
        if self.exported is not None:
            text, signature = self.exported
            if not store.keys.verify(text.encode(), signature):
                raise Tampered("the signature of this state is wrong: the text was changed")


def run_named(where: RunState | str, store: Store, agent: str) -> str:
    """Return the id or the thread of the run that was passed to ``resume`` or ``cancel``."""
    if isinstance(where, RunState):
        where.check(store, agent)
        return where.run
    if not isinstance(where, str):
        kind = type(where).__name__
        raise InvalidCall(f"pass result.state, a run's id or a thread, not {kind}", "where")
    return where


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of ``run`` or ``resume``.

    ``status`` is ``"paused"`` with ``interruptions``, ``"done"`` with ``output``, or ``"failed"``
    or ``"cancelled"`` with ``error``. Stage decisions on ``state`` and pass it to ``resume``.
    """

    status: ResultStatus
    run: str
    thread: str
    output: Any = None
    error: str = ""
    #: The model's words if it refused the task.
    refusal: str = ""
    interruptions: tuple[Request, ...] = ()
    #: Token counts over the whole run.
    usage: Mapping[str, int] = field(default_factory=dict)
    state: RunState = field(repr=False)
    #: The framework's own result, in the process that ran the agent; None elsewhere.
    raw: Any = field(default=None, repr=False, compare=False)


# --- JSON inside an exported state ---

_DECISION_TYPES: dict[str, type[Decision]] = {
    kind.type: kind for kind in (Approve, Edit, Reject, Respond)
}
_CONTENT = ("args", "unset", "message", "stop", "value")
#: Fields that the store knows better, or that only a store can vouch for.
_LEFT_OUT = (
    "schema",
    "votes",
    "decision",
    "execution",
    "original",
    "requester_decides",
    "assurance",
    "effect",
    "effect_key",
    "evidence",
)


def _staged_to_json(staged: StagedDecision) -> dict[str, Json]:
    decision = staged.decision
    fields: dict[str, Json] = {
        "type": decision.type,
        "by": staged.by,
        "request": decision.request,
        "digest": decision.seen_digest,
    }
    if staged.grant is not None:
        fields["grant"] = dict(staged.grant)
    return fields | {n: getattr(decision, n) for n in _CONTENT if hasattr(decision, n)}


def _staged_from_json(value: Mapping[str, Any]) -> StagedDecision:
    kind = _DECISION_TYPES.get(value["type"])
    if kind is None:
        raise InvalidDecision(f"no decision of type {value['type']!r}", "type")
    content = {name: value[name] for name in _CONTENT if name in value}
    decision = kind(request=value["request"], seen_digest=value["digest"], **content)
    return StagedDecision(decision, value["by"], value.get("grant"))


def _request_to_json(request: Request) -> dict[str, Json]:
    """Return what a person needs in order to decide."""
    fields = request_json(request)
    if request.question is not None:  # canonical JSON sorts keys; this keeps the schema's order
        fields["question"] = stored_question(request.question)
    return {name: value for name, value in fields.items() if name not in _LEFT_OUT and value}


def _request_from_json(value: Mapping[str, Any], run: str, thread: str) -> Request:
    kept_fields = {name: item for name, item in value.items() if name not in _LEFT_OUT}
    return request_from({"run": run, "thread": thread, **kept_fields})


# --- decisions passed to resume ---


def decisions_from(given: object, requests: Sequence[Request]) -> list[Decision]:
    """Return the decisions. Raises ``InvalidDecision`` if one is invalid."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        listed = given.get("decisions")
        if not isinstance(listed, list | tuple):
            raise InvalidDecision('pass {"decisions": [...]}', "decisions")
        if len(listed) != len(requests):
            raise InvalidDecision(
                f"{len(listed)} decisions for {len(requests)} requests: pass one for each, in "
                "order",
                "decisions",
            )
        return [
            decision_from(item, request, f"decisions[{n}]")
            for n, (item, request) in enumerate(zip(listed, requests, strict=True))
        ]
    if isinstance(given, Decision):
        given = (given,)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidDecision(
            'pass {"decisions": [...]} or a list made of request.approve() and the like'
        )
    decisions = list(given)
    for decision in decisions:
        if not isinstance(decision, Decision) or decision.request is None:
            raise InvalidDecision("make each decision from its request: request.approve()")
    return decisions


class DecisionInbox(Protocol):
    """The part of an ``Inbox`` that writes decisions."""

    async def decide(
        self,
        request: str,
        decision: Decision,
        *,
        by: str | Reviewer,
        channel: str = ...,
        grant: Mapping[str, Any] | None = ...,
    ) -> Request: ...


async def take_decisions(
    inbox: DecisionInbox,
    store: Store,
    where: RunState | str,
    thread: str,
    given: object,
    requests: Sequence[Request] = (),
    *,
    by: str | Reviewer,
    channel: str = "python",
) -> None:
    """Write what was staged on a state, each decision once, and then what was passed to ``resume``.

    ``requests`` are those that a mapping of decisions answers, in order. Nothing is written if one
    of the decisions is invalid, or was asked for on another thread.
    """
    decisions = decisions_from(given, requests)
    if decisions:
        await read(store, _check_asked_in, store, thread, decisions)
    if isinstance(where, RunState):
        for staged in where.staged:
            decision = staged.decision
            grant = staged.grant
            await inbox.decide(
                decision.request or "", decision, by=staged.by, channel="state", grant=grant
            )
        where.staged.clear()
    for decision in decisions:
        await inbox.decide(decision.request or "", decision, by=by, channel=channel)


def _check_asked_in(store: Store, thread: str, decisions: Iterable[Decision]) -> None:
    """Raise ``InvalidDecision`` for a request from another thread, sub-agents' threads excepted.

    The right to resume one conversation does not include decisions in another.
    """
    for decision in decisions:
        call = store.call(decision.request or "")
        if call is not None and not _asked_within(store, thread, call):
            raise InvalidDecision(
                f"{call.id} was asked on thread {call.thread!r}, not on {thread!r}: resume that "
                "thread, or decide in the inbox"
            )


def _asked_within(store: Store, thread: str, call: Call) -> bool:
    """Return whether a call was made on this thread or in a sub-agent's run below it."""
    outer_call: Call | None = call
    while outer_call is not None and outer_call.thread != thread:
        run = store.run(outer_call.run)
        outer_call = store.call(run.parent_call) if run is not None and run.parent_call else None
    return outer_call is not None


#: The fields that go with each type of decision, beside ``message``.
_FIELDS: dict[str, tuple[str, ...]] = {
    "approve": (),
    "edit": ("edited_action", "args", "unset"),
    "reject": ("stop",),
    "respond": ("value",),
}


def decision_from(given: object, request: Request, at: str = "decision") -> Decision:
    """Return the decision for one request. Raises ``InvalidDecision``."""
    if not isinstance(given, Mapping):
        raise InvalidDecision(f'{at}: write {{"type": "approve"}} or the like', at)
    type = given.get("type")
    if type not in request.allowed:
        allowed = ", ".join(request.allowed)
        raise InvalidDecision(f"{at}.type: {type!r:.40} is not one of {allowed}", f"{at}.type")
    for name in ("edited_action", "args", "unset", "stop", "value"):
        if name in given and name not in _FIELDS[type]:
            advice = 'to change the arguments, send an edit: {"type": "edit", "args": {…}}'
            if name == "stop":
                advice = "only a rejection can stop the run"
            raise InvalidDecision(
                f"{at}.{name}: {name} does not go with {type!r}; {advice}", f"{at}.{name}"
            )
    if type == "approve":
        return request.approve(_text(given.get("message", ""), f"{at}.message"))
    if type == "edit":
        return _edit(given, request, at)
    if type == "reject":
        return _rejection(given, request, at)
    if "value" not in given and "message" not in given:
        raise InvalidDecision(f"{at}.message: a response needs a message", f"{at}.message")
    return request.respond(given["value"] if "value" in given else given["message"])


def _rejection(given: Mapping[Any, Any], request: Request, at: str) -> Decision:
    stop = given.get("stop", False)
    if not isinstance(stop, bool):
        raise InvalidDecision(f"{at}.stop: use true or false", f"{at}.stop")
    return request.reject(_text(given.get("message", ""), f"{at}.message"), stop=stop)


def _edit(given: Mapping[Any, Any], request: Request, at: str) -> Decision:
    """Return an edit. ``edited_action``, as in LangChain, holds the complete arguments."""
    from sayso import schema  # brings jsonschema

    if "edited_action" in given:
        edit = Edit.replacing(request.editable, _complete_args(given["edited_action"], request, at))
    elif "args" in given or "unset" in given:
        edit = Edit(given.get("args", {}), given.get("unset", ()))
    else:
        raise InvalidDecision(
            f'{at}: an edit looks like {{"args": {{…}}, "unset": […]}}, with what it changes, or '
            '{"edited_action": {"name": …, "args": {…}}}, with all arguments',
            at,
        )
    try:
        args = edit.applied_to(request.editable, request.args)
    except InvalidDecision as error:
        raise InvalidDecision(f"{at}.{error.path}: {error}", f"{at}.{error.path}") from None
    rules = schema.edit_rules(request.schema or {}, request.args, request.written)
    wrong = schema.errors(rules, args)
    if wrong:
        path, message = wrong[0]
        raise InvalidDecision(f"{at}.args.{path}: {message}", f"{at}.args.{path}")
    return request.edit(edit.args, unset=edit.unset)


def _complete_args(action: object, request: Request, at: str) -> dict[str, Json]:
    args = action.get("args") if isinstance(action, Mapping) else None
    if not isinstance(action, Mapping) or not isinstance(args, Mapping):
        raise InvalidDecision(
            f'{at}: an edit looks like {{"edited_action": {{"name": …, "args": {{…}}}}}}', at
        )
    if action.get("name", request.tool) != request.tool:
        raise InvalidDecision(
            f"{at}: an edit cannot change the tool (the request is for {request.tool}): reject it "
            "and say what to do instead",
            f"{at}.edited_action.name",
        )
    if request.written is not None:  # its framework adds the defaults
        return dict(args)
    properties = (request.schema or {}).get("properties", {})
    defaults = {name: p["default"] for name, p in properties.items() if "default" in p}
    return {**defaults, **args}


def _text(value: object, at: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidDecision(f"{at} must be text", at)
    return value
