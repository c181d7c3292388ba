"""The bodies that the API takes and gives, for reading them and for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sayso.types import Effect, OnDuplicate, RequestKind

Digest = Annotated[str, Field(description="The digest that was shown: what is approved is this.")]


class Body(BaseModel):
    """Something that a client sends: nothing but these fields. Built when the first one comes."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class GrantBody(Body):
    """A standing yes that goes with an approval."""

    scope: str | dict[str, Any] = Field(
        "exact", description="`exact`, `any`, or a JSON Schema that the arguments must match"
    )
    uses: int | None = Field(None, description="how often; without it, as often as needed")
    ends_in: float | int = Field(86_400, description="seconds until it ends")


class DecisionBody(Body):
    """One person's answer to one request."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"type": "approve", "seen_digest": "3f1c…"},
                {"type": "edit", "args": {"city": "Porto"}, "seen_digest": "3f1c…"},
                {"type": "reject", "message": "Wrong customer."},
                {"type": "respond", "value": "sunny"},
            ]
        },
    )
    type: Literal["approve", "edit", "reject", "respond"]
    args: dict[str, Any] | None = Field(None, description="an edit's whole arguments")
    message: str | None = Field(None, description="why; the agent reads it")
    value: Any = Field(None, description="the answer, or the result in place of a run")
    seen_digest: str | None = Field(
        None, description="the digest that was shown; needed to approve and to edit"
    )
    grant: GrantBody | None = None


class OneOfMany(Body):
    """A decision among several; they are of one kind, on like requests."""

    id: str = Field(examples=["req_7f3a…"])
    type: Literal["approve", "reject", "respond"]
    message: str | None = None
    value: Any = None
    seen_digest: str | None = None


class CancelBody(Body):
    """Why a request is called off."""

    message: str = Field("", examples=["not needed any more"])


class CheckBody(Body):
    """Arguments to try out."""

    args: dict[str, Any] = Field(examples=[{"city": "Porto"}])


class LoginBody(Body):
    """What a link carries behind its ``#``, or a token."""

    token: str = Field(max_length=500, examples=["sayso_…"])


class OptionBody(Body):
    """One choice of a question."""

    label: str
    value: Any = None
    description: str = ""


class QuestionBody(Body):
    """What an agent wants to know."""

    text: str
    options: list[OptionBody | str] = []
    multiple: bool = False
    free_text: bool | None = None
    # Not called `schema`, which pydantic's models have already.
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class RiskBody(Body):
    """How bad it could be, as the agent sees it; it can only raise what the policy says."""

    level: Literal["low", "medium", "high", "critical"]
    reasons: list[str] = []


def _short(name: str) -> BeforeValidator:
    """What stands where an object could: its one field that matters."""
    return BeforeValidator(lambda given: {name: given} if isinstance(given, str) else given)


#: One name need not be a list.
OneOrMore = Annotated[
    list[str] | None,
    BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
]


class OpenBody(Body):
    """A call, a question or a text that a remote agent puts to people.

    Give ``tool`` and ``args``, or ``question``, or ``text`` (with ``details``). What an agent asks
    for itself (risk, reviewers, quorum, expiry) can only make the policy's terms stricter.
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
        None, description="not needed: what is given says it; if it is said, it has to fit"
    )
    tool: str | None = Field(None, min_length=1, max_length=200)
    args: dict[str, Any] = {}
    schema_: dict[str, Any] | None = Field(
        None, alias="schema", description="a JSON Schema of the arguments; edits are checked by it"
    )
    returns: dict[str, Any] | None = Field(None, description="a JSON Schema of the result")
    question: Annotated[QuestionBody | None, _short("text")] = Field(
        None, description="or the text alone"
    )
    text: str | None = None
    details: dict[str, Any] = {}
    agent: str | None = Field(
        None, max_length=200, description="a name for it, where nobody signs in"
    )
    run: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="what belongs together; else all that the agent opens in a thread, or this",
    )
    thread: str | None = Field(None, min_length=1, max_length=200)
    requester: str = Field("", max_length=200)
    description: str = ""
    title: str = Field("", max_length=300, description="what people read first; the agent's words")
    note: str = Field("", description="the agent's own words; shown as unverified")
    preview: Any = None
    binds: dict[str, Any] = Field(
        {}, description="facts of the surroundings that an approval covers; sent again by a claim"
    )
    allowed: OneOrMore = None
    reviewers: OneOrMore = None
    quorum: int | None = None
    risk: Annotated[RiskBody | None, _short("level")] = Field(
        None, description="or the level alone"
    )
    expires_in: float | int | str | None = Field(
        None, description='seconds, or a text such as "15m", "24h" or "7d"'
    )
    valid_for: float | int | str | None = Field(None, description="likewise")
    effect: Effect | None = Field(
        None, description="what running it changes; it can only make the policy's word stricter"
    )
    effect_key: str | None = Field(
        None,
        description="makes the effect unique among this agent's: a text with the names of "
        "arguments in braces",
        examples=["refund:{order}"],
    )
    on_duplicate: OnDuplicate | None = Field(
        None, description="what a second call with the same effect key gets"
    )


class FreshTerms(Body):
    """What the agent's code demands of its reviewers now; it can only raise the stored terms."""

    reviewers: OneOrMore = None
    quorum: int | None = None


class ClaimBody(Body):
    """How long the claim holds without a renewal, and the call as it is at the agent now.

    What is left out counts as unchanged.
    """

    lease: float | int = Field(
        60, gt=0, le=3600, description="seconds; `renew` extends it", examples=[120]
    )
    tool_digest: str | None = Field(None, description="of the tool as the agent has it now")
    binds: dict[str, Any] | None = Field(None, description="the facts of the surroundings now")
    effect_key: str | None = Field(None, description="as when it was opened, if it is the same")
    terms: FreshTerms | None = None


class TokenBody(Body):
    """The token that a claim gave, and the attempt."""

    token: int = Field(examples=[1])
    attempt: int | None = Field(None, description="the claim's; without it, the token's own")


class ResultBody(TokenBody):
    """What came of the call."""

    ok: bool = True
    outcome: Literal["paused", "in_doubt", "not_kept"] | None = Field(
        None,
        description="instead of a result: it asked people something and starts again, it was cut "
        "short, or it ran and its result could not be stored",
    )
    result: Any = Field(
        None,
        description="the result; with ok=false, what went wrong, as text",
        examples=["receipt 4711"],
    )


# -- what is given back


class View(BaseModel):
    """Something that is given back: for the document alone, so built when that is wanted."""

    model_config = ConfigDict(defer_build=True)


class ErrorView(View):
    """Every refusal: which, one sentence that says what to do, and where it applies."""

    error: str = Field(examples=["AlreadyDecided"])
    message: str
    field: str | None = None
    request: str | None = None
    decision: dict[str, Any] | None = None


class RequestView(View):
    """A request: its fields, and under ``shown`` the same made inert for a page."""

    model_config = ConfigDict(extra="allow")
    id: str
    kind: RequestKind
    status: str
    agent: str
    run: str
    thread: str
    tool: str | None
    args: dict[str, Any]
    schema_: dict[str, Any] | None = Field(alias="schema", description="of the arguments")
    question: dict[str, Any] | None
    title: str = Field(description="what people read first; empty if the tool gives none")
    description: str
    note: str = Field(description="the agent's own words, unverified")
    preview: Any
    original: dict[str, Any] | None = Field(description="the arguments before an edit")
    digest: str | None = Field(description="null where something is masked: reveal it first")
    revision: int
    allowed: list[str]
    reviewers: list[str]
    quorum: int
    votes: list[dict[str, Any]]
    risk: dict[str, Any]
    rule: str
    requester: str
    requester_decides: bool
    assurance: str = Field(description="the least that a decision needs")
    effect: Effect = Field(description="what running it changes")
    effect_key: str = Field(description="what makes the effect unique in the store, if it must be")
    evidence: dict[str, Any] | None = Field(
        description="what the other side said of a call in doubt: answer, text and at"
    )
    created_at: datetime
    expires_at: datetime | None
    decision: dict[str, Any] | None
    execution: dict[str, Any]
    masked: bool
    can: list[str] = Field(description="the decisions that are open to you now")
    why_not: str
    shown: dict[str, Any]


class RequestPage(View):
    """Some requests, and where the next page begins."""

    items: list[RequestView]
    next: str | None


class ClaimView(View):
    """The approved arguments, once, and what proves that it is you who runs them."""

    request: str
    tool: str | None
    args: dict[str, Any]
    token: int
    attempt: int
    key: str = Field(description="the same for every attempt: an idempotency key for services")
    lease: float


class Items(View):
    """A list, and where the next page begins."""

    model_config = ConfigDict(extra="allow")
    items: list[dict[str, Any]]
    next: str | None = None
