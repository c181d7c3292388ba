"""The JSON bodies that the API accepts and returns, and how a route reads one.

``*Body`` models are requests: strict, and closed to unknown fields. ``*View`` models describe
responses in the OpenAPI document; routes write those as plain dicts. All models are built on first
use, because building them would take longer than the rest of a server's start.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache, cached_property
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from fastapi import Request as HttpRequest
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from starlette.requests import ClientDisconnect

from sayso import codec
from sayso.errors import InvalidCall
from sayso.rows import RunStatus
from sayso.server.responses import Malformed, TooLarge
from sayso.sync import to_thread
from sayso.types import (
    Assurance,
    DecisionType,
    Effect,
    Failure,
    OnDuplicate,
    OnExpiry,
    Overturn,
    RequestKind,
    RequestStatus,
    RiskLevel,
    VerdictName,
)

T = TypeVar("T")

# -- reading a body


#: Bytes of a body that are parsed on the event loop; parsing more would delay everyone.
_LARGE = 64 * 1024


async def read_body(request: HttpRequest, most: int | None = None) -> bytes:
    """Return the body of a request. Raise ``TooLarge`` once it has more bytes than ``most``."""
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            pieces.append(piece)
            size += len(piece)
            if most is not None and size > most:
                raise TooLarge(f"this body may have at most {most:,} bytes: send less")
    except ClientDisconnect:
        raise Malformed("the connection closed before the whole body arrived: retry") from None
    return b"".join(pieces)


async def read_json(request: HttpRequest) -> Any:
    """Return the body of a request as JSON; a large one is parsed off the event loop."""
    raw = await read_body(request)
    return codec.parse(raw) if len(raw) <= _LARGE else await to_thread(codec.parse, raw)


class BodyRules(NamedTuple):
    """Marks the parameter of a route that is the request body: see ``Routes``."""

    #: Whether clients have to send one; an empty body means ``{}``. For the OpenAPI document.
    required: bool = True
    #: How many bytes it may have, if fewer than any body.
    most: int | None = None


#: A body that clients have to send, and one that they may leave out.
Sent: TypeAlias = Annotated[T, BodyRules()]
MaySend: TypeAlias = Annotated[T, BodyRules(required=False)]


class JsonBody(Generic[T]):
    """A FastAPI dependency that reads the request body as strict JSON and validates it.

    FastAPI's own body parameters are parsed before any dependency runs, so anyone could make the
    server parse a large body without a token. They also accept duplicate keys and NaN, and turn a
    413 raised while the body is read into a 400. A dependency runs in the order of the parameters:
    put it after the one that authenticates.
    """

    def __init__(self, shape: Any, rules: BodyRules) -> None:
        self.shape = shape
        self.rules = rules

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self.shape)

    async def __call__(self, request: HttpRequest) -> T:
        raw = await read_body(request, self.rules.most)
        return self._parse(raw) if len(raw) <= _LARGE else await to_thread(self._parse, raw)

    def _parse(self, raw: bytes) -> T:
        try:
            value = codec.parse(raw or b"{}")
        except InvalidCall as error:
            raise Malformed(f"the body cannot be read: {error}") from None
        try:
            return self._adapter.validate_python(value, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            # Pydantic adds the branch of a union to the path; that is not a field.
            names = [str(part) for part in first["loc"] if part not in _UNION_BRANCHES]
            field = ".".join(names) or "body"
            message = _MESSAGES.get(first["type"], first["msg"][0].lower() + first["msg"][1:])
            raise InvalidCall(f"{field}: {message}", field) from None


_UNION_BRANCHES = ("dict[str,any]", "str", "int", "float", "bool")
#: Pydantic's messages for these name Python types, which mean nothing to an HTTP client.
_MESSAGES = {
    "extra_forbidden": "unknown field",
    "dict_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "list_type": "must be a list",
    "missing": "this field is required",
}


# -- what clients send


class Body(BaseModel):
    """Base class of request bodies: unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class GrantBody(Body):
    """A grant to create along with an approval: later calls in its scope run without asking."""

    scope: str | dict[str, Any] = Field(
        "exact",
        description="`exact`, `any`, or a JSON Schema that the arguments must match. For a command "
        "of a coding agent, `any` means any arguments after its subcommand, and "
        '`{"command": ["npm", "test"], "arguments": "any"}` says how many words to keep; for a '
        'file, `{"path": "src"}` is a folder of the project. `grant-preview` lists them',
        examples=["exact"],
    )
    uses: int | None = Field(None, description="how many calls it covers; unlimited if omitted")
    ends_in: float | int = Field(86_400, description="seconds until the grant ends")
    limits: list[str] = Field(
        [],
        description="what the calls that it covers may add up to",
        examples=[["sum(amount) <= 1000 per 1d"]],
    )


#: The fields that go with each type of decision, and the one that it needs.
DECISION_FIELDS = {
    "approve": {"grant", "message"},
    "edit": {"args", "unset", "message"},
    "reject": {"message", "stop"},
    "respond": {"value", "message"},
}
_NEEDED = {"respond": "value"}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "approve": {"type": "approve", "seen_digest": "3f1c…"},
    "edit": {"type": "edit", "args": {"city": "Porto"}, "seen_digest": "3f1c…"},
    "reject": {"type": "reject", "message": "Wrong customer."},
    "respond": {"type": "respond", "value": "sunny"},
}


def _one_of_each_type(schema: dict[str, Any]) -> None:
    """Describe a decision as one of several objects, each with the fields of its type."""
    fields = schema.pop("properties")
    for name in ("required", "additionalProperties", "type"):
        schema.pop(name, None)
    schema["oneOf"] = []
    for kind in fields.pop("type")["enum"]:
        own = DECISION_FIELDS[kind] | {"id", "seen_digest"}
        properties = {name: dict(described) for name, described in fields.items() if name in own}
        needed = [name for name in ("id", _NEEDED.get(kind)) if name in properties]
        body: dict[str, Any] = {
            "title": f"{kind.title()}{schema['title']}",
            "type": "object",
            "additionalProperties": False,
            "required": ["type", *needed],
            "properties": {"type": {"type": "string", "const": kind}, **properties},
        }
        if kind == "edit":
            body["anyOf"] = [{"required": ["args"]}, {"required": ["unset"]}]
        schema["oneOf"].append(body)
        example = {"id": "req_7f3a…"} if "id" in properties else {}
        schema.setdefault("examples", []).append({**example, **_EXAMPLES[kind]})


class PasskeyAnswerBody(Body):
    """What a browser's passkey answered to the options that the server sent."""

    statement: str = Field(
        max_length=50_000, description="as the server sent it", examples=['{"nonce":"…"}']
    )
    answer: dict[str, Any] = Field(description="the `PublicKeyCredential` as JSON")


class PasskeyBody(PasskeyAnswerBody):
    """A new passkey."""

    name: str = Field("", max_length=100, examples=["My phone"])


class ShownBody(Body):
    """What the page says of how a request was read. Nothing verifies it."""

    seconds: float = Field(ge=0, le=366 * 86_400, description="for how long it was open")
    complete: bool = Field(description="whether all of it was on the screen")


class DecisionBody(Body):
    """A decision on a request."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_one_of_each_type)
    type: DecisionType
    args: dict[str, Any] = Field(
        {}, description="for an edit: the arguments that it changes; all others stay as shown"
    )
    unset: list[str] = Field(
        [], description="for an edit: the names of the arguments that it removes"
    )
    message: str | None = Field(
        None, description="the reason of a rejection, which the agent reads; else a note"
    )
    value: Any = Field(None, description="the answer, or the result to use instead of running it")
    seen_digest: str | None = Field(
        None, description="the digest you were shown; required to approve and to edit"
    )
    grant: GrantBody | None = None
    stop: bool = Field(False, description="for a rejection: also cancel the run")
    undo_seconds: float = Field(
        0,
        description="for how long you can undo it, at most 30; it takes effect after that",
        examples=[5],
    )
    shown: ShownBody | None = Field(None, description="how it was read: stored as a claim")
    passkey: PasskeyAnswerBody | None = Field(
        None, description="the answer to `confirmation`, for a rule that asks for a passkey"
    )


class BulkDecisionBody(Body):
    """One decision of a batch. All of a batch have one type and concern one tool."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_one_of_each_type)
    id: str = Field(examples=["req_7f3a…"])
    type: Literal["approve", "reject", "respond"]
    message: str | None = None
    value: Any = None
    seen_digest: str | None = None
    stop: bool = False
    shown: ShownBody | None = None


class CancelBody(Body):
    """Why a request is cancelled."""

    message: str = Field("", examples=["not needed any more"])


class CheckBody(Body):
    """An edit to validate without deciding: what it changes, and what it removes."""

    args: dict[str, Any] = Field({}, examples=[{"city": "Porto"}])
    unset: list[str] = []


class SavedFilters(Body):
    """Filters of pending requests, as `GET /api/requests` takes them."""

    q: str = Field("", max_length=500, examples=["tool:pay older:1h"])
    mine: bool = False
    kind: RequestKind | None = None
    agent: str | None = Field(None, max_length=200)
    tool: str | None = Field(None, max_length=200)
    risk: RiskLevel | None = None
    expires_within: int | None = Field(None, ge=1, le=10**9)


class LinkCodeBody(Body):
    """A code that was sent to your address."""

    code: str = Field(max_length=100, examples=["haN0Tu8t7-pchLOb_Wqy0w"])


_TIME = "^(([01][0-9]|2[0-3]):[0-5][0-9])?$"


class NoticesBody(Body):
    """When messages reach you. What is left out is reset, and all of it without a body."""

    quiet_from: str = Field("", pattern=_TIME, examples=["22:00"])
    quiet_until: str = Field("", pattern=_TIME, examples=["07:00"])
    zone: str = Field("UTC", max_length=64, examples=["Europe/Berlin"])
    only_away: bool = Field(False, description="only while you are away from the web app")


class LoginBody(Body):
    """The secret of a one-time link (the part after ``#``), or a token."""

    token: str = Field(max_length=500, examples=["sayso_…"])
    switch: bool = Field(
        False, description="sign out the person who is signed in in this browser; without it, 409"
    )


Role: TypeAlias = Literal["agent", "chat", "reviewer", "admin"]
_PersonName = Annotated[str, Field(min_length=1, max_length=200, examples=["ana"])]


class AddPersonBody(Body):
    """A person or an agent to add."""

    name: _PersonName
    role: Role = "reviewer"
    groups: list[_PersonName] = Field(default=[], max_length=100)
    mail: str = Field("", max_length=300)
    restore: bool = Field(False, description="bring back the same person, who was removed")


def _parsed_time(value: object) -> object:
    """JSON has no times, so a strict body would take none."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


class AwayBody(Body):
    """Who decides for a person who is away."""

    stand_in: str = Field("", max_length=200)
    until: Annotated[AwareDatetime, BeforeValidator(_parsed_time)] | None = Field(
        description="until when; null if the person is back"
    )


class AccountBody(Body):
    """An account of an OpenID provider."""

    issuer: str = Field(min_length=1, max_length=500, examples=["https://login.example.com"])
    subject: str = Field(min_length=1, max_length=500)


class ChangePersonBody(Body):
    """What to change of a person. What is left out stays."""

    add_groups: list[_PersonName] = Field(default=[], max_length=100)
    remove_groups: list[_PersonName] = Field(default=[], max_length=100)
    role: Role | None = None
    mail: str | None = Field(None, max_length=300)
    away: AwayBody | None = None
    account: AccountBody | None = Field(None, description="what they sign in with from now on")


class NewTokenBody(Body):
    """A token to create, and the person or agent to add if they are new."""

    name: _PersonName
    role: Role | None = None
    groups: list[_PersonName] | None = Field(None, max_length=100)
    ends_in: float | None = Field(None, gt=0, le=3660 * 86400, description="seconds")


class OptionBody(Body):
    """One option of a question."""

    label: str
    value: Any = None
    description: str = ""


class QuestionBody(Body):
    """A question that an agent asks."""

    text: str
    options: list[OptionBody | str] = []
    multiple: bool = False
    free_text: bool | None = None
    # Not named `schema`: pydantic models have a method of that name.
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class RiskBody(Body):
    """The agent's own estimate of the risk. It can only raise what the policy says."""

    level: RiskLevel
    reasons: list[str] = []


def _shorthand(name: str, taken: Any) -> BeforeValidator:
    """Accept a string in place of an object, as its field ``name``. Clients may send ``taken``."""
    return BeforeValidator(
        lambda given: {name: given} if isinstance(given, str) else given,
        json_schema_input_type=taken,
    )


#: A list of strings; a single string is accepted as a list of one.
OneOrMore = Annotated[
    list[str] | None,
    BeforeValidator(
        lambda given: [given] if isinstance(given, str) else given,
        json_schema_input_type=list[str] | str | None,
    ),
]


Caller = Annotated[
    str, Field(pattern=r"^(use|args):.+$", max_length=300, examples=["use:toolu_01A09q90qw90"])
]


class ResolvedBody(Body):
    """A call of a coding agent as its own machine resolves it: links and ``..`` followed."""

    directory: str = Field("", max_length=4096)
    program: str = Field("", max_length=4096, description="the file that the command would run")
    files: list[Annotated[str, Field(max_length=4096)]] = Field(
        [], max_length=500, description="those in the directory are relative to it"
    )


class OpenBody(Body):
    """A tool call, a question or a text that a remote agent asks people about.

    Send ``tool`` with ``args``, or ``question``, or ``text`` with ``details``. Terms that an agent
    sends (risk, quorum, expiry) can only make the policy's terms stricter.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"tool": "refund", "args": {"order": "A-17", "amount": 20}, "run": "order-A-17"}
            ]
        },
    )
    kind: Literal["approval", "question"] | None = Field(
        None, description="optional; must match the other fields if you send it"
    )
    tool: str | None = Field(None, min_length=1, max_length=200)
    args: dict[str, Any] = {}
    schema_: dict[str, Any] | None = Field(
        None, alias="schema", description="a JSON Schema of the arguments; edits must match it too"
    )
    returns: dict[str, Any] | None = Field(None, description="a JSON Schema of the result")
    machine: dict[str, str] = Field(
        {},
        max_length=20,
        description="what `sayso hook` found on the agent's machine: from a kind of call to a "
        "sentence. It can only make a policy for coding agents stricter",
    )
    resolved: ResolvedBody | None = Field(
        None, description="how `sayso hook` resolved the call on the agent's machine, for grants"
    )
    question: Annotated[QuestionBody | None, _shorthand("text", QuestionBody | str | None)] = Field(
        None, description="a question, or its text as a string"
    )
    text: str | None = None
    details: dict[str, Any] = {}
    agent: str | None = Field(
        None, max_length=200, description="the agent's name, on a server without authentication"
    )
    run: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="groups requests that belong together; defaults to one run per thread, or to "
        "one run per request. Its id is `agent/name`: each agent has its own names",
    )
    thread: str | None = Field(None, min_length=1, max_length=200)
    requester: str = Field(
        "",
        max_length=200,
        description="the person that the agent says it asks for. This may exclude them from "
        "deciding, and never allows anyone to decide",
    )
    description: str = ""
    title: str = Field(
        "", max_length=300, description="what people read first; shown as the agent's words"
    )
    note: str = Field("", description="the agent's own words; shown as unverified")
    preview: Any = None
    session: str | None = Field(
        None,
        min_length=1,
        max_length=400,
        description="what a rejection lasts for, an hour at most, if each call has its own run",
    )
    binds: dict[str, Any] = Field(
        {}, description="facts that an approval depends on; send them again with the claim"
    )
    needs_approval: Literal[True] | None = Field(
        None,
        description="`true`: ask also where the policy's default or a preset would allow the call. "
        "With `caller`: the agent prompts for a tool use that it has opened before, and the answer "
        "of a person, a grant or the user's rule still holds",
    )
    allowed: OneOrMore = None
    reviewers: OneOrMore = Field(
        None,
        description="whom to notify. It gives nobody a right, and takes none away: the policy says "
        "who decides",
    )
    quorum: int | None = None
    requester_decides: bool | None = Field(None, description="`false` excludes the requester")
    assurance: Assurance | None = Field(None, description="the least assurance of a decision")
    risk: Annotated[RiskBody | None, _shorthand("level", RiskBody | RiskLevel | None)] = Field(
        None, description="a risk, or its level as a string"
    )
    expires_in: float | int | str | None = Field(
        None, description='seconds, or a duration such as "15m", "24h" or "7d"'
    )
    on_expiry: OnExpiry | None = Field(None, description="what an expired request becomes")
    valid_for: float | int | str | None = Field(
        None, description="how long an approval may be used, in the same format"
    )
    effect: Effect | None = Field(
        None, description="what running it changes; can only make the policy's value stricter"
    )
    effect_key: str | None = Field(
        None,
        description="makes the effect unique among this agent's calls: a template with argument "
        "names in braces",
        examples=["refund:{order}"],
    )
    on_duplicate: OnDuplicate | None = Field(
        None, description="what a second call with the same effect key gets"
    )
    caller: Caller | None = Field(
        None,
        description="for a call that the agent runs itself once it is released, as a coding agent "
        "does after its hook: `use:` and the id of the tool use, or `args:` and a hash of the "
        "call. The same call, opened again by the same tool use or after `defer`, finds the "
        "request that has no answer yet",
    )


class CallerBody(Body):
    """The `caller` that the request was opened with."""

    caller: Caller


class ReportBody(CallerBody):
    """An agent's report of what a released call did."""

    agent: str | None = Field(
        None, max_length=200, description="the agent's name, on a server without authentication"
    )
    run: str = Field(min_length=1, max_length=200)
    tool: str = Field("", max_length=200, description="the tool's name, in case nobody was asked")
    ok: bool = True
    result: Any = Field(None, examples=["3 files changed"])
    args: dict[str, Any] | None = Field(
        None, description="what it ran with; stored with the result if it is not what was approved"
    )


class PromptBody(Body):
    """A session in which the user has written something new."""

    agent: str | None = Field(
        None, max_length=200, description="the agent's name, on a server without authentication"
    )
    run: str = Field(min_length=1, max_length=200, examples=["0b1f…"])


class FreshTerms(Body):
    """The terms that the agent's code requires now. They can only tighten the stored ones."""

    reviewers: OneOrMore = None
    quorum: int | None = None
    requester_decides: bool | None = None
    assurance: Assurance | None = None


class ClaimBody(Body):
    """How long to hold the claim, and the call as the agent sees it now.

    Fields that you omit count as unchanged.
    """

    lease: float | int = Field(
        60,
        gt=0,
        le=3600,
        description="seconds until the claim lapses; `renew` extends it",
        examples=[120],
    )
    tool_digest: str | None = Field(None, description="the digest of the agent's tool now")
    binds: dict[str, Any] | None = Field(None, description="the current values of the bound facts")
    effect_key: str | None = Field(None, description="the current effect key template")
    terms: FreshTerms | None = None


class TokenBody(Body):
    """The token and attempt that a claim returned."""

    token: int = Field(examples=[1])
    attempt: int | None = Field(
        None, description="the claim's attempt; defaults to the call's current one"
    )


class ResultBody(TokenBody):
    """The outcome of a claimed call."""

    ok: bool = True
    outcome: Literal["paused", "in_doubt", "not_kept"] | None = Field(
        None,
        description="instead of a result: the call paused to ask people and will start again, was "
        "interrupted, or ran but its result could not be stored",
    )
    failure: Failure = Field(
        "error",
        description="what the error means for the effect, if `ok` is false: nothing in particular, "
        "the reply was `lost` (a time-out, a connection error), the outcome is `in_doubt`, or it "
        "was `not_executed`. The server decides whether the call has failed or is in doubt; no "
        "word of an agent frees an effect key",
    )
    result: Any = Field(
        None,
        description="the result, or the error text if `ok` is false",
        examples=["receipt 4711"],
    )


# -- what the API returns


class View(BaseModel):
    """Base class of response models, which only the OpenAPI document uses."""

    model_config = ConfigDict(defer_build=True)


class Page(View, Generic[T]):
    """A page of a list, and the cursor of the next page.

    A page of requests may be short, even empty, although there is a next one.
    """

    items: list[T]
    next: str | None


@cache
def page_of(item: type[View]) -> type[Page[Any]]:
    """Return the model of a page of these items: ``RunPage`` for ``RunView``."""
    name = f"{item.__name__.removesuffix('View')}Page"
    return create_model(name, __base__=Page[item], __doc__=Page.__doc__)  # type: ignore[valid-type]


class RiskView(View):
    """How risky a call is, and why."""

    level: RiskLevel
    reasons: list[str]


class VoteView(View):
    """One approval of a quorum."""

    type: DecisionType
    by: str
    at: datetime
    assurance: Assurance
    on_behalf_of: str = Field(description="who is away and for whom `by` voted; may be empty")


class ReadingView(View):
    """How a person read a request, as their page says."""

    seconds: float
    complete: bool = Field(description="whether all of it was on the screen")


class DecisionView(View):
    """Who decided what, when, and how surely we know them."""

    type: str
    by: str
    at: datetime
    channel: str
    assurance: Assurance
    source: Literal["person", "model", "grant", "window", "plan", "rule", "preset"] = Field(
        description="who made it; a `rule` is the user's, a `preset` is not"
    )
    grant: str = Field("", description="the grant, window or plan that allowed it")
    on_behalf_of: str = Field("", description="who is away and for whom `by` decided")
    message: str = ""
    args: dict[str, Any] | None = Field(None, description="for an edit: what is to run")
    value: Any = Field(None, description="for an answer")
    stop: bool = Field(False, description="for a rejection: it also cancelled the run")
    undo_until: datetime | None = Field(
        None, description="`by` can undo it until then, when it takes effect"
    )
    shown: ReadingView | None = Field(None, description="how it was read, as the page said")


class ErrorView(View):
    """An error: its name, a message that says what to do, and what it applies to."""

    error: str = Field(examples=["AlreadyDecided"])
    message: str
    field: str | None = None
    request: str | None = None
    decision: DecisionView | None = Field(None, description="the decision that was made before")


class ExecutionView(View):
    """The execution of a call, as opposed to the status of its request."""

    status: str
    attempts: int
    result: Any
    kept: bool = Field(True, description="false if it ran and its result could not be stored")
    attempt_running: bool | None = Field(
        default=None,
        description="for a call in doubt: whether its attempt still runs; then it cannot be "
        "approved yet",
    )


class OptionView(View):
    """One option of a question."""

    label: str
    value: Any = Field(description="what the answer is; the label if null")
    description: str


class QuestionView(View):
    """A question that an agent asked."""

    text: str
    options: list[OptionView]
    multiple: bool
    free_text: bool
    schema_: dict[str, Any] | None = Field(alias="schema", description="of the answer")


class PromptView(View):
    """Whether there was anything to end."""

    noted: bool


class EvidenceView(View):
    """What the other side reported about a call in doubt."""

    answer: Literal["ran", "did_not_run", "unknown"]
    text: str
    at: datetime


class OpinionView(View):
    """What a model says of a request that people decide. Nothing verifies it."""

    model: str
    answer: Literal["allow", "ask", "reject"]
    reason: str


class EarlierRejectionView(View):
    """A rejection of an equal call. All but the id is null if you may not see that request."""

    id: str
    request: str | None
    by: str | None
    at: datetime | None
    message: str | None


class ShownView(View):
    """A request for a page to display: masked, and with hidden characters made visible."""

    args: dict[str, Any]
    lines: list[str] = Field(description="the arguments as lines of text")
    original: dict[str, Any] | None
    written: dict[str, Any] | None
    title: str
    description: str
    note: str
    preview: Any
    binds: Any
    evidence: EvidenceView | None
    opinion: OpinionView | None
    question: QuestionView | None
    schema_: dict[str, Any] | None = Field(alias="schema")
    tool: str
    agent: str
    requester: str
    summary: str = Field(description="one line for lists")
    warnings: list[str] = Field(description="what hidden or misleading characters were found")
    hidden: int = Field(description="how many hidden characters there are")


class RequestView(View):
    """A request. ``shown`` holds the same fields made inert, for a page to display."""

    model_config = ConfigDict(extra="allow")
    id: str
    kind: RequestKind
    status: RequestStatus
    agent: str
    run: str
    thread: str
    tool: str | None
    args: dict[str, Any]
    schema_: dict[str, Any] | None = Field(alias="schema", description="of the arguments")
    question: QuestionView | None
    title: str = Field(description="what people read first; empty if the tool has no title")
    description: str
    note: str = Field(description="the agent's own words, unverified")
    preview: Any
    original: dict[str, Any] | None = Field(description="the arguments before an edit")
    written: dict[str, Any] | None = Field(
        description="what the model or an edit wrote, if validators make `args` of it; an edit "
        "changes these"
    )
    digest: str | None = Field(description="null if something is masked: reveal it first")
    revision: int
    allowed: list[DecisionType]
    reviewers: list[str]
    notify: list[str] = Field(description="whom a remote agent suggests to notify")
    notify_via: list[str] = Field(
        description="through which channels the rule notifies people, and whom"
    )
    escalates_at: datetime | None = Field(
        description="when the people in `escalate_to` may decide too"
    )
    escalate_to: list[str]
    escalated: bool = Field(description="whether they may decide now")
    quorum: int
    votes: list[VoteView]
    risk: RiskView
    rule: str
    requester: str = Field(description="for whom it was asked; a claim if `remote`")
    requester_decides: bool
    remote: bool = Field(description="whether an agent on another machine opened it")
    assurance: Assurance = Field(description="the least assurance that a decision needs")
    effect: Effect = Field(description="what running it changes")
    effect_key: str = Field(description="what makes the effect unique in the store; may be empty")
    binds: Any = Field(description="facts of the agent's environment, compared again at the start")
    evidence: EvidenceView | None = Field(
        description="for a call in doubt, what the other side reported"
    )
    plan: bool = Field(description="whether it is a plan: its arguments list the steps")
    opinion: OpinionView | None = Field(
        description="what the model says that reviewed it first; nothing verifies it"
    )
    overturn: Overturn = Field(
        description="who may approve it although an equal call was rejected before"
    )
    refusals: list[EarlierRejectionView] = Field(
        description="earlier rejections of an equal call, newest first"
    )
    created_at: datetime
    expires_at: datetime | None
    decision: DecisionView | None
    execution: ExecutionView
    masked: bool
    size: int = Field(description="bytes of the arguments as JSON")
    can: list[DecisionType] = Field(description="the decisions that you may make now")
    why_not: str
    confirm_with: Literal["passkey"] | None = Field(
        None, description="what each of your decisions has to be confirmed with"
    )
    shown: ShownView
    caller: str | None = Field(
        None, description="if you opened it with a `caller`, who waits for it: release it to them"
    )


class GroupView(View):
    """Requests with the same kind, agent, tool and risk, counted."""

    kind: RequestKind
    agent: str
    tool: str | None
    risk: RiskLevel
    count: int
    at_least: bool = Field(description="whether there may be more")
    expires_at: datetime | None = Field(description="when the first of them expires")
    oldest_at: datetime = Field(description="when the oldest of them was asked")


class ValueCount(View):
    """A value to filter by, and how many requests have it."""

    value: str
    count: int


class FilterValues(View):
    """The values that each filter finds something for, with the other filters on."""

    kind: list[ValueCount]
    agent: list[ValueCount]
    tool: list[ValueCount]
    risk: list[ValueCount]


class GroupsView(View):
    """Counts of the requests that match: exact, unless `q` matches more than 5,000."""

    count: int
    at_least: bool = Field(description="whether there may be more")
    yours: int = Field(
        description="how many of them wait for your decision; above 100 requests, how many are for "
        "everyone, for you or for your groups"
    )
    items: list[GroupView]
    values: FilterValues


class SavedViewView(View):
    """A saved view, and how many requests are in it, as `GET /api/requests/groups` counts them."""

    name: str
    filters: SavedFilters
    count: int
    at_least: bool = Field(description="whether there may be more")
    yours: int


class ClaimView(View):
    """The approved arguments, and the token that proves your claim."""

    request: str
    tool: str | None
    args: dict[str, Any]
    token: int
    attempt: int
    key: str = Field(description="an idempotency key, the same for every attempt")
    lease: float


class SignInView(View):
    """The ways to sign in, besides a token or a one-time link."""

    oidc: bool
    passkeys: bool


class OptionsView(View):
    """What a browser needs to use a passkey. Send `statement` back with its answer."""

    statement: str
    options: dict[str, Any] = Field(description="for `navigator.credentials`, as JSON")


class PasskeyView(View):
    """A passkey."""

    id: str
    device: str
    created_at: str
    last_used_at: str
    fingerprint: str = Field(description="SHA-256 of the public key, as proofs name it")
    algorithm: int = Field(description="the COSE number: -7, -8 or -257")


class MeView(View):
    """Your identity, and facts about the server."""

    name: str
    role: Role
    groups: list[str]
    assurance: Assurance
    auth: bool
    demo: bool
    environment: str
    version: str
    agents: int
    store: str = Field(description="its address, without a password; empty for chat users")


class HealthView(View):
    """Whether the server and its store work, and how many runs it advances now."""

    status: str = Field(examples=["ok"])
    store: str
    version: str
    busy: int


class RunView(View):
    """A run."""

    model_config = ConfigDict(extra="allow")
    id: str
    thread: str
    title: str = Field(description="of its first request that you may see; may be empty")
    agent: str
    status: RunStatus
    held: bool = Field(description="whether a process works on it now")
    stop: str = Field(description="why it was cancelled; may be empty")
    requester: str
    created_at: datetime
    open: int = Field(description="how many of its requests wait for a person")
    output: Any


class WindowView(View):
    """Trust in a run, and what it let run."""

    id: str
    by: str
    max_risk: Literal["low", "medium"]
    created_at: datetime
    ends_at: datetime
    ended_at: datetime | None = Field(description="when it was stopped, or ended by a rejection")
    live: bool
    calls: list[str] = Field(description="the tools of the calls that it allowed, in order")


class EventView(View):
    """An event of the audit log. Names are empty if it is not for you."""

    cursor: str
    thread: str
    seq: int
    digest: str
    hash: str
    at: datetime
    type: str
    actor: str
    run: str
    request: str
    tool: str | None
    body: Any


class VerificationView(View):
    """What verifying the audit log found."""

    ok: bool
    events: int
    threads: int
    seals: int
    unsealed: int
    problems: list[str]


class NoticesView(View):
    """When messages reach you."""

    quiet_from: str = Field(description="when your quiet hours begin, such as 22:00; or empty")
    quiet_until: str = Field(description="when they end; messages then are one digest")
    zone: str = Field(description="the time zone of both, such as Europe/Berlin")
    only_away: bool = Field(description="whether messages wait while you use the web app")
    quiet_until_now: datetime | None = Field(
        description="when the quiet hours end in which you are now"
    )


class PersonView(View):
    """A person or an agent, and what they may do."""

    name: str
    kind: Literal["person", "agent"]
    role: Role
    groups: list[str]
    mail: str
    origin: str = Field(description="`local`, or issuer and subject as a JSON array")
    status: Literal["active", "removed"]
    created_at: datetime
    changed_at: datetime
    stand_in: str | None = Field(description="who decides for them until `away_until`")
    away_until: datetime | None


class ListedPersonView(PersonView):
    """A person or an agent, and when they were here."""

    signed_in_at: datetime | None = Field(description="the latest sign-in that is still known")


class PersonPage(Page[ListedPersonView]):
    """People and agents."""


class CredentialView(View):
    """A token, a sign-in link, a session or a passkey. The secret is not stored."""

    id: str
    person: str
    kind: Literal["token", "link", "session", "passkey", "chat", "code", "push"]
    role: Role = Field(description="the most that it allows")
    assurance: Assurance
    opened_by: str | None = Field(description="the token or link that opened a session")
    device: str = Field(
        description="the browser of a session; the name of a passkey, an account or a subscription"
    )
    place: str = Field(description="the address from which a session was opened")
    created_at: datetime
    signed_in_at: datetime | None = Field(description="when the person proved who they are")
    last_used_at: datetime
    ends_at: datetime | None = Field(description="when it ends if it is not used again")
    revoked_at: datetime | None
    current: bool = Field(description="whether this request was sent with it")


class LinkedAccountView(View):
    """An account that a person linked."""

    id: str
    account: str = Field(description="as the platform names it")
    linked_at: datetime


class OwnChannelView(View):
    """A channel of this server, and your accounts in it."""

    name: str
    link: Literal["code", "mail", "push"] = Field(
        description="how to link an account: send a code to the bot, confirm the code that is sent "
        "to your mail address, or subscribe a browser"
    )
    key: str | None = Field(description="the `applicationServerKey` with which browsers subscribe")
    accounts: list[LinkedAccountView]


class ChannelHealthView(View):
    """A channel of this server, and how it is doing. No secret is in it."""

    name: str
    state: Literal["ok", "failing", "down"] = Field(
        description="`failing` if the last message failed, `down` if the platform does not answer"
    )
    bot: str | None = Field(description="who the bot is, as the platform says; null if `down`")
    error: str | None = Field(description="why the last message failed, or the platform's answer")
    failed_at: datetime | None = Field(description="when a message last failed")
    sent_at: datetime | None = Field(description="when a message was last sent")
    waiting: int = Field(description="messages that wait to be sent or updated")
    dead: int = Field(description="messages that were given up")


class SubscriptionKeys(Body):
    """The keys of a browser's subscription."""

    p256dh: str = Field(
        max_length=200,
        examples=[
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcx"
            "aOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        ],
    )
    auth: str = Field(max_length=100, examples=["BTBZMqHH6r4Tts7J_aSIgg"])


class SubscriptionBody(Body):
    """A browser that is to get push messages, as `PushSubscription.toJSON()` describes it."""

    endpoint: str = Field(max_length=2000, examples=["https://push.example.com/send/fJ2b7Q"])
    keys: SubscriptionKeys
    device: str = Field(
        max_length=100, description="what you call the browser", examples=["My phone"]
    )


class TestMessageView(View):
    """What became of a test message."""

    sent: int = Field(description="to how many accounts it was sent")
    error: str | None = Field(description="why it was not sent to another one")


class LinkCodeView(View):
    """A code that links one account, once."""

    code: str | None = Field(description="null if it was sent to your address")
    send: str | None = Field(description="what to send to the bot")
    open: str | None = Field(description="the URL that opens the bot with it, if there is one")
    ends_at: datetime


class PersonDetailsView(ListedPersonView):
    """A person or an agent with what proves who they are."""

    credentials: list[CredentialView] = Field(description="those that are valid now")
    stands_in_for: list[str] = Field(description="people for whom this one decides now")


class PeopleGroupView(View):
    """A group, and how many people and agents are in it."""

    name: str
    members: int


class NewTokenView(CredentialView):
    """A new token with its secret, which is not shown again."""

    token: str


class TakenAwayView(View):
    """A person after a change, and the ids of what ended with it."""

    person: PersonView
    credentials: list[CredentialView]
    grants: list[str]
    votes: list[str] = Field(description="pending requests on which their vote counted")
    approved: list[str] = Field(description="requests that they approved and that wait to run")


class BudgetView(View):
    """A limit, and how much of it is used."""

    limit: str = Field(examples=["sum(amount) <= 1000 per 1d"])
    used: float
    most: float
    frees_at: datetime | None = Field(description="when the oldest part stops counting")


class RuleBudget(BudgetView):
    """A limit of a rule of the policy."""

    tools: str = Field(description="the tools and the agents of the rule")


class GrantView(View):
    """A grant: what runs without asking, until when, and who granted it."""

    id: str
    agent: str
    tool: str
    scope: Any
    shown_scope: list[str]
    by: str
    created_at: datetime
    ends_at: datetime | None
    uses_left: int | None
    steps_left: int | None = Field(description="of a plan")
    revoked_at: datetime | None
    live: bool
    budgets: list[BudgetView]


class GrantPage(Page[GrantView]):
    """All grants that you may see, and what the limits of the policy's rules have counted."""

    budgets: list[RuleBudget]


class ScopeChoice(View):
    """A scope that a grant for a command or a file can have."""

    scope: Any
    shown: list[str]


class CoveredView(View):
    """A request that a grant would cover."""

    id: str
    status: RequestStatus
    by: str | None
    at: datetime
    summary: str


class TakenView(CoveredView):
    """A pending request that a grant would cover."""

    digest: str | None = Field(description="to approve it too; null if a part of it is masked")


class GrantPreviewView(View):
    """What a grant would cover, among the latest requests of its agent and tool."""

    ok: bool
    message: str = Field("", description="why the grant could not be given")
    scope: Any = None
    shown_scope: list[str] = []
    scopes: list[ScopeChoice] = Field(
        [], description="for a command or a file: the scopes to choose from, the narrowest first"
    )
    past: list[CoveredView] = []
    pending: list[TakenView] = []
    replay: ReplayView | None = Field(
        None, description="what it would have done with the newest calls that you may see"
    )


class ArgumentPatternView(View):
    """What one argument was in all of the approved calls."""

    argument: str
    kind: Literal["same", "one_of", "at_most", "folder"]
    value: Any = Field(description="the value, the values, the largest number, or the folder")
    shown: str = Field(description="the same as a sentence")


class SuggestionView(View):
    """A grant that equal decisions suggest."""

    id: str = Field(description="changes when the pattern does")
    agent: str
    tool: str
    risk: RiskLevel
    pattern: list[ArgumentPatternView] = Field(
        description="what the arguments have in common; empty for commands and files"
    )
    shown_scope: list[str]
    count: int = Field(description="how many approvals suggest it")
    examples: list[CoveredView] = Field(description="the newest of them")
    pending: list[TakenView] = Field(description="pending requests that it covers")
    ends_in: float = Field(description="for how many seconds the grant lasts")
    replay: ReplayView
    rule: str = Field(description="a rule for a policy file that allows the same; empty if none")
    no_rule: str = Field(description="why there is no such rule")


class AcceptBody(Body):
    """How long the grant of a suggestion lasts."""

    ends_in: float | int = Field(
        2_592_000, description="seconds, at most a year", examples=[2_592_000]
    )


class WindowBody(Body):
    """Trust in a run: it does what it asks for, up to a risk, for some minutes."""

    run: str = Field(description="the run's id", examples=["0b1f…"])
    max_risk: Literal["low", "medium"] = Field(
        "medium", description="calls of which no rule declares the risk count as high"
    )
    ends_in: float | int = Field(900, description="seconds, at most 8 hours")


class ReplayBody(Body):
    """A policy to try on the calls in the store: nothing runs, and nothing is stored."""

    policy: str = Field(
        description="the text of a policy file, in TOML",
        examples=['[[rule]]\ntool = "send_*"\nwhere = "amount < 100"\nverdict = "allow"'],
    )
    since: str = Field("30d", description="how far back: `12h`, `30d`")


Treatment = Literal["asked", "allowed", "denied", "refused"]


class ReplayChange(View):
    """How many calls would have been treated differently in one way."""

    before: Treatment
    after: Treatment
    outcome: RequestStatus | None = Field(description="how the request ended, if people were asked")
    count: int


class ReplayedRule(View):
    """The calls that one rule would have decided."""

    rule: str
    calls: int
    before: dict[str, int] = Field(description="how many of them were asked, allowed or denied")
    after: dict[str, int] = Field(description="how many would have been")


class ReplayedCall(View):
    """A call that would have been treated differently."""

    id: str
    tool: str
    agent: str
    by: str | None = Field(description="who decided it")
    before: Treatment
    after: Treatment
    rule: str
    outcome: RequestStatus | None
    created_at: datetime


class ReplayedAnswer(View):
    """How often a model gave an answer and people decided in this way."""

    model: str
    answer: Literal["allow", "ask", "reject"]
    outcome: RequestStatus
    count: int


class ReplayedDisagreement(View):
    """A call about which a model said the opposite of what people decided."""

    id: str
    tool: str
    agent: str
    model: str
    answer: Literal["allow", "ask", "reject"]
    outcome: RequestStatus
    created_at: datetime


class ReplayView(View):
    """What a policy would have done with the calls in the store."""

    calls: int
    changes: list[ReplayChange]
    rules: list[ReplayedRule]
    overruled: int = Field(description="calls that people rejected, and that would have run")
    differences: list[ReplayedCall] = Field(
        description="calls that would have been different and that you may see: those first that "
        "people rejected, then the newest"
    )
    answers: list[ReplayedAnswer] = Field(
        description="what models said of calls that they reviewed first, and people decided"
    )
    disagreements: list[ReplayedDisagreement] = Field(
        description="calls that you may see and about which they said the opposite"
    )
    not_stored: list[str] = Field(description="what the replay had to do without")


class RefusalView(View):
    """A rejection that also counts for equal calls of the agent."""

    id: str
    request: str = Field(description="the request that was rejected")
    run: str
    agent: str
    tool: str
    by: str
    at: datetime
    message: str
    ends_at: datetime | None = Field(
        description="when people are asked about an equal call again, at the latest"
    )
    overturn: Overturn
    lifted_at: datetime | None
    lifted_by: str | None


class FieldError(View):
    """Why a field is invalid."""

    field: str
    message: str


class Change(View):
    """A value that an edit changes; null where there is none."""

    path: str
    before: str | None
    after: str | None


class Lines(View):
    """The arguments before and after an edit, as lines of text."""

    before: list[str]
    after: list[str]


class CheckView(View):
    """What an edit would change, and, if it is valid, under which terms it would be decided."""

    ok: bool
    errors: list[FieldError]
    shown: Lines
    diff: list[Change]
    validated: dict[str, Any] | None = Field(
        description="what the tool's validators make of the edit; null if they are not known here, "
        "or change nothing"
    )
    verdict: VerdictName | None = None
    risk: RiskView | None = None
    quorum: int | None = None
    rule: str | None = None


class DecisionResultView(View):
    """The outcome of one decision of a batch: the request, or why it was not decided."""

    id: str
    request: RequestView | None = None
    error: ErrorView | None = None


class DecisionResults(Page[DecisionResultView]):
    """The outcome of each decision of a batch, in the order of the batch."""


class RenewView(View):
    """Whether a claim is still valid."""

    ours: bool


class ChatView(View):
    """A chat that you started."""

    id: str
    agent: str
    title: str = Field(description="the beginning of its first message")
    updated_at: datetime
    status: RunStatus


class UiMessage(View):
    """A message of a chat, as `useChat` reads it."""

    model_config = ConfigDict(extra="allow")
    id: str
    role: Literal["user", "assistant", "system"]
    parts: list[dict[str, Any]]


class Messages(View):
    """The messages of a chat."""

    messages: list[UiMessage]


class AgentToolView(View):
    """A tool of an agent."""

    name: str
    description: str
    schema_: dict[str, Any] = Field(alias="schema", description="of the arguments")
    needs_approval: Literal["always", "sometimes", "never"]
    allowed: list[DecisionType]


class AgentView(View):
    """An agent of this server."""

    name: str
    default: bool = Field(description="whether a chat that names no agent is with this one")
    chat: bool = Field(description="whether people can chat with it here")
    tools: list[AgentToolView]


class HookView(View):
    """The hook of a coding agent in one session, since this server started."""

    agent: str
    session: str
    last_at: datetime = Field(description="when the hook last sent anything")
    unasked: int = Field(description="how many tool uses ended that it had not asked about")
    unasked_tool: str = Field(description="the tool of the last of these; may be empty")


class Bar(View):
    """One bar of a histogram."""

    label: str
    count: int


class OpenStats(View):
    """The requests that wait for a person."""

    count: int
    oldest_at: datetime | None
    by_age: list[Bar]


class DecidedStats(View):
    """How long people took to decide."""

    count: int
    median_seconds: float | None
    p95_seconds: float | None
    under_three_seconds: int = Field(description="approvals in less than three seconds")
    expired: int


class DayStats(View):
    """The requests of one day."""

    day: str = Field(examples=["2026-11-15"])
    asked: int
    decided: int
    expired: int


class ToolStats(View):
    """The requests of one tool."""

    tool: str
    asked: int
    approved: int
    edited: int
    rejected: int
    responded: int
    expired: int
    rate: float | None = Field(description="approved and edited, of those that were decided")


class ReviewerStats(View):
    """The decisions of one person."""

    name: str
    count: int
    median_seconds: float | None
    under_three: int


class StatsView(View):
    """Statistics over the requests that you may see."""

    days: int
    since: datetime = Field(description="when the first day begins")
    open: OpenStats
    decided: DecidedStats
    per_day: list[DayStats]
    tools: list[ToolStats]
    reviewers: list[ReviewerStats]
    histogram: list[Bar] = Field(description="times to decision")
