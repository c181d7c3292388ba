"""The API of reviewers: list and read requests, decide them, manage grants and refusals."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import Field

from sayso import codec, schema, text
from sayso.engine.budgets import BudgetState
from sayso.engine.commands import Note
from sayso.errors import (
    Conflict,
    InvalidCall,
    InvalidDecision,
    InvalidPolicy,
    NotFound,
    Refused,
    SaysoError,
)
from sayso.inbox import DecisionResult
from sayso.inbox.decisions import (
    budget_json,
    call_has_secrets,
    displayed_scope,
    grant_budgets,
    grant_scopes,
    rule_budgets,
    scope_sentence,
    steps_left,
)
from sayso.inbox.inbox import MAX_PAGE, MOST_REPLAYED, GrantPreview
from sayso.inbox.people import may_see, names_of
from sayso.inbox.replay import Replay, replay_json, replay_observed
from sayso.inbox.suggestions import ENDS_IN, Suggestion
from sayso.policy import Policy, tighten
from sayso.policy.limits import parse_duration
from sayso.redaction import redact, secrets_of, without_fingerprints
from sayso.rows import Call
from sayso.server import remote_agents
from sayso.server.audiences import grant_audience
from sayso.server.auth import (
    AnyPrincipal,
    CurrentAdmin,
    CurrentChatUser,
    CurrentReviewer,
    Identity,
    check_visible,
    recording_refusals,
)
from sayso.server.details import request_details, secrets_of_scope, similar_view
from sayso.server.openapi import Routes
from sayso.server.request_views import edited_args, request_view
from sayso.server.responses import JsonResponse, RawJsonResponse, error_body
from sayso.server.routes.parameters import Mine, RequestFilters, RequestId
from sayso.server.routes.sign_in import confirmation_options, confirmed_by
from sayso.server.schemas import (
    DECISION_FIELDS,
    AcceptBody,
    BulkDecisionBody,
    CancelBody,
    CheckBody,
    CheckView,
    DecisionBody,
    DecisionResults,
    GrantBody,
    GrantPage,
    GrantPreviewView,
    GrantView,
    GroupsView,
    MaySend,
    OptionsView,
    RefusalView,
    ReplayBody,
    ReplayView,
    RequestView,
    Sent,
    SuggestionView,
    page_of,
)
from sayso.server.service import CurrentService, CurrentStore, Service, service_of
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable, request_in, secrets_of_calls
from sayso.sync import to_thread, write
from sayso.text import inert
from sayso.types import (
    SECOND,
    SORTS,
    Approve,
    Decision,
    Edit,
    Grant,
    Json,
    Refusal,
    Reject,
    Respond,
    Reviewer,
    iso,
)
from sayso.types import Request as SaysoRequest

log = logging.getLogger("sayso.server")
router = Routes("/api", tag="requests")
grants_router = Routes("/api/grants", tag="grants")
refusals_router = Routes("/api/refusals", tag="refusals")

# -- reading requests


@router.get("/requests", "List requests", page_of(RequestView))
def list_requests(
    service: CurrentService,
    who: CurrentReviewer,
    filters: RequestFilters,
    mine: Mine = False,
    sort: Annotated[
        str | None, Query(description="which come first", json_schema_extra={"enum": [*SORTS]})
    ] = None,
    after: Annotated[str | None, Query(description="the `next` of the page before")] = None,
    limit: Annotated[
        int, Query(ge=1, le=200, description="how many at most; very large requests mean fewer")
    ] = 50,
) -> JsonResponse:
    """List the requests that you may see: pending ones oldest first, others newest first."""
    filters |= {"limit": limit, "after": after or None} | ({"sort": sort} if sort else {})
    if filters["status"] != "pending":
        filters.setdefault("sort", "newest")
    render = service.request_lists.page
    return RawJsonResponse(render(who.reviewer, filters, mine=mine))


@router.get("/requests/groups", "Count requests", GroupsView)
def count_requests(
    service: CurrentService, who: CurrentReviewer, filters: RequestFilters, mine: Mine = False
) -> JsonResponse:
    """Count the requests that you may see by kind, agent, tool and risk.

    Takes the filters of the list. The counts are exact, however many requests there are.
    """
    count = service.request_lists.groups
    return JsonResponse(count(who.reviewer, filters, mine=mine))


@router.get("/requests/{request_id}", "Get a request", RequestView, 404)
def get_request(service: CurrentService, who: AnyPrincipal, request_id: RequestId) -> JsonResponse:
    """Return a request with its conversation, its events, and the outcome of similar calls."""
    try:
        stored_request = service.inbox.get_sync(request_id)
    except NotFound:
        # A rule or a grant was enough, so nobody was asked; its agent may read it all the same.
        call = remote_agents.get_call(service, request_id)
        stored_request = request_in(service.store, call)
    check_visible(who, stored_request)
    body = request_view(stored_request, who.reviewer)
    if who.role != "agent":
        masked = bool(body["masked"])
        body |= request_details(service, stored_request, who.reviewer, masked=masked)
    return JsonResponse(body)


@router.post("/requests/{request_id}/reveal", "Reveal masked values", RequestView, 404)
def reveal_request(
    service: CurrentService, who: CurrentReviewer, request_id: RequestId
) -> JsonResponse:
    """Return the request with nothing masked, after recording that you saw it."""
    stored_request = service.inbox.get_sync(request_id)
    check_visible(who, stored_request)
    service.inbox.reveal_sync(request_id, by=who.name)
    details = request_details(service, stored_request, who.reviewer, masked=False)
    return JsonResponse(request_view(stored_request, who.reviewer, reveal=True) | details)


# -- deciding

BulkDecisions = Annotated[list[BulkDecisionBody], Field(min_length=1, max_length=100)]


@router.post("/requests/{request_id}/decision", "Decide a request", RequestView, 404, 409)
async def decide_request(
    request: Request, who: CurrentChatUser, request_id: RequestId, body: Sent[DecisionBody]
) -> JsonResponse:
    """Approve, edit, reject or respond. If someone decided first, 409 says who and what."""
    service = service_of(request)
    decision = _decision(body)
    tried = decision.type
    by = await confirmed_by(request, who, body.passkey)
    try:
        async with recording_refusals(service, who.reviewer, tried=tried, request=request_id):
            check_visible(who, await service.inbox.get(request_id))
            decided = await service.inbox.decide(
                request_id,
                decision,
                by=by,
                seen_digest=body.seen_digest,
                channel=who.channel,
                grant=None if body.grant is None else body.grant.model_dump(),
                undo_seconds=body.undo_seconds,
                shown=None if body.shown is None else body.shown.model_dump(),
            )
    except (Conflict, Refused) as error:
        raise await _with_winner(service, request_id, error) from None
    service.metrics.decisions.labels(decision.type).inc()
    if service.agents and not service.feed.running:
        log.warning(
            "%s is decided, but this process will not resume its run: the app is mounted without "
            "its lifespan, see docs/server.md",
            request_id,
        )
    return JsonResponse(request_view(decided, who.reviewer))


@router.post("/requests/{request_id}/undo", "Undo your own decision", RequestView, 404, 409, 422)
async def undo_decision(
    service: CurrentService, who: CurrentChatUser, request_id: RequestId
) -> JsonResponse:
    """Take your decision back within its `undo_seconds`. The request is pending again."""
    check_visible(who, await service.inbox.get(request_id))
    try:
        reopened = await service.inbox.undo(request_id, by=who.reviewer)
    except Conflict as error:
        raise await _with_winner(service, request_id, error) from None
    return JsonResponse(request_view(reopened, who.reviewer))


@router.post(
    "/requests/{request_id}/confirmation",
    "Begin to confirm a decision with a passkey",
    OptionsView,
    404,
)
async def begin_confirmation(
    request: Request, who: CurrentReviewer, request_id: RequestId, body: Sent[DecisionBody]
) -> JsonResponse:
    """Return what the browser needs to sign this decision with one of your passkeys.

    Send the decision with the answer as its `passkey`, within two minutes.
    """
    check_visible(who, await service_of(request).inbox.get(request_id))
    decision = _decision(body)
    options = await confirmation_options(request, who, request_id, body.seen_digest, decision)
    return JsonResponse(options)


@router.post("/decisions", "Decide many requests", DecisionResults, 404)
async def decide_requests(
    service: CurrentService, who: CurrentReviewer, body: Sent[BulkDecisions]
) -> JsonResponse:
    """Make the same kind of decision on up to 100 requests of one tool.

    Each item of the response has its own `request` or `error`.
    """
    decisions = [_decision(item, item.id) for item in body]
    missing: dict[str, NotFound] = {}
    for item in body:
        try:
            async with recording_refusals(service, who.reviewer, tried=item.type, request=item.id):
                check_visible(who, await service.inbox.get(item.id))
        except NotFound as error:
            missing[item.id] = error
    visible = [decision for decision in decisions if decision.request not in missing]
    if not visible:
        raise missing[body[0].id]
    shown = {item.id: item.shown.model_dump() for item in body if item.shown is not None}
    decided = await service.inbox.decide_many(
        visible, by=who.reviewer, channel=who.channel, shown=shown
    )
    results = iter(decided)
    outcomes = [
        DecisionResult(item.id, None, missing[item.id]) if item.id in missing else next(results)
        for item in body
    ]
    items: list[dict[str, Json]] = []
    for outcome in outcomes:
        if outcome.request is not None:
            service.metrics.decisions.labels(decisions[0].type).inc()
            view = request_view(outcome.request, who.reviewer)
            items.append({"id": outcome.id, "request": view})
        elif outcome.error is not None:
            problem = outcome.error
            if outcome.id not in missing:
                problem = await _with_winner(service, outcome.id, problem)
            items.append({"id": outcome.id, "error": error_body(problem)})
    return JsonResponse({"items": items, "next": None})


def _decision(body: DecisionBody | BulkDecisionBody, request: str | None = None) -> Decision:
    """Return the decision of a body. Raise ``InvalidDecision`` if its fields do not fit."""
    fields = body.model_fields_set
    misplaced = (
        fields & {"args", "unset", "message", "value", "grant", "stop"} - DECISION_FIELDS[body.type]
    )
    if misplaced:
        field = sorted(misplaced)[0]
        raise InvalidDecision(f"{field} does not go with {body.type!r}", field)
    bound: dict[str, Any] = {
        "request": request,
        "seen_digest": body.seen_digest,
        "message": body.message or "",
    }
    if body.type == "approve":
        return Approve(**bound)
    if body.type == "reject":
        return Reject(stop=body.stop, **bound)
    if body.type == "respond":
        if "value" not in fields:
            raise InvalidDecision("respond needs a value", "value")
        return Respond(body.value, **bound)
    assert isinstance(body, DecisionBody)
    if not fields & {"args", "unset"}:
        raise InvalidDecision("edit needs args to change, or the names of some to unset", "args")
    return Edit(body.args, body.unset, **bound)


async def _with_winner(service: Service, request_id: str, error: SaysoError) -> SaysoError:
    """Attach the request, with the decision that won, to a conflict."""
    error.request = await service.inbox.get(request_id)
    return error


@router.post("/requests/{request_id}/cancel", "Cancel a request", RequestView, 404, 409)
async def cancel_request(
    service: CurrentService, who: AnyPrincipal, request_id: RequestId, body: MaySend[CancelBody]
) -> JsonResponse:
    """Cancel a pending request, or an approved call that has not started.

    An agent may cancel its own.
    """
    stored_request = await service.inbox.get(request_id)
    check_visible(who, stored_request)
    try:
        if stored_request.status not in ("pending", "approved", "edited"):
            raise Conflict(
                f"request {stored_request.id} is {stored_request.status}: it cannot be cancelled"
            )
        await service.inbox.cancel(request_id, by=who.name, reason=body.message)
    except Conflict as error:
        raise await _with_winner(service, request_id, error) from None
    return JsonResponse(request_view(await service.inbox.get(request_id), who.reviewer))


# -- trying out an edit


@router.post("/requests/{request_id}/check", "Check an edit", CheckView, 404)
async def check_edit(
    service: CurrentService, who: CurrentChatUser, request_id: RequestId, body: Sent[CheckBody]
) -> JsonResponse:
    """Validate edited arguments without deciding: errors, changes, and the rule they match."""
    stored_request = await service.inbox.get(request_id)
    check_visible(who, stored_request)
    if secrets_of(stored_request):
        service.limits.count_check(who.name)
        about: dict[str, Json] = {"request": stored_request.id}
        note = Note(thread=stored_request.thread, type="checked", actor=who.name, body=about)
        await write(service.store, note)
    # In a worker thread: it evaluates the policy, which may take long.
    return JsonResponse(await to_thread(_check_edit, service, stored_request, body, who.reviewer))


def _check_edit(
    service: Service, request: SaysoRequest, edit: CheckBody, by: Reviewer
) -> dict[str, Json]:
    call = service.store.call(request.id)
    assert call is not None
    written = Edit(edit.args, edit.unset).applied_to(request.editable, request.args)
    args: dict[str, Json] = written
    validated: str | None = None
    has_secrets = bool(secrets_of(request))
    problems: list[dict[str, Json]] = []
    if request.tool is None or request.schema is None:
        problems.append({"field": "args", "message": "only a tool call can be edited"})
    else:
        try:
            canonical = codec.loads(codec.canonical(written))
            rules = schema.edit_rules(request.schema, request.args, request.written)
            invalid = schema.errors(rules, canonical, quote=not has_secrets)
            problems += [{"field": path, "message": message} for path, message in invalid]
            validated = None if problems else service.validate(call, canonical)
        except InvalidCall as error:
            why = "the tool refuses these arguments" if has_secrets else str(error)
            problems.append({"field": error.path, "message": why})
    if validated is not None:
        args = codec.loads(validated)
    before, after = edited_args(request, args, edit.args, by, written=validated is None)
    body: dict[str, Json] = {
        "ok": not problems,
        "errors": problems,
        "shown": {"before": text.lines(before), "after": text.lines(after)},
        "diff": _diff(before, after),
        "validated": None if validated is None else inert(after),
    }
    if not problems:
        terms = tighten(call.terms, service.judge(call, args))
        body |= {
            "verdict": str(terms.verdict),
            "risk": {"level": terms.risk.level, "reasons": list(terms.risk.reasons)},
            "quorum": terms.quorum,
            "rule": text.inline(terms.rule),
        }
    return body


@router.post("/requests/{request_id}/grant-preview", "Preview a grant", GrantPreviewView, 404)
def preview_grant(
    service: CurrentService, who: CurrentReviewer, request_id: RequestId, body: Sent[GrantBody]
) -> JsonResponse:
    """Say what a grant would cover: its scope, and the latest past and pending requests.

    For a command or a file, `scopes` lists the scopes to choose from. If the grant could not be
    given, `message` says why.
    """
    stored_request = service.inbox.get_sync(request_id)
    check_visible(who, stored_request)
    try:
        own_scope = _is_own_scope(service.store, request_id, body)
        if own_scope and secrets_of(stored_request):
            # Whether the scope fits would answer questions about the masked values.
            raise InvalidDecision(
                "this request has masked values: choose the scope exact, any, or one of `scopes`"
            )
        sees = partial(_is_counted, service.store, who, own_scope=own_scope)
        preview = service.inbox.preview_grant_sync(
            request_id, body.model_dump(), by=who.reviewer, sees=sees
        )
    except InvalidDecision as error:
        return JsonResponse({"ok": False, "message": inert(str(error))})
    return JsonResponse(_preview_view(service.store, preview, who, own_scope=own_scope))


def _is_own_scope(store: Store, request_id: str, grant: GrantBody) -> bool:
    """Return whether a scope is the caller's own, and not one that the preview offers."""
    call = store.call(request_id)
    offered = [] if call is None else [s for s in grant_scopes(call) if not redact(s).masked]
    return isinstance(grant.scope, dict) and grant.scope not in offered


def _is_counted(store: Store, who: Identity, call: Call, *, own_scope: bool) -> bool:
    """Return whether a replay may count a call: counts say something about its arguments."""
    if not may_see(who.reviewer, call):
        return False
    return not (own_scope and call_has_secrets(call, store.tool(call.tool_digest)))


def _preview_view(
    store: Store, preview: GrantPreview, who: Identity, *, own_scope: bool
) -> dict[str, Json]:
    grant = preview.grant

    def listed(other: SaysoRequest) -> bool:
        return may_see(who.reviewer, other) and not (own_scope and secrets_of(other))

    scope = without_fingerprints(_masked_scope(store, grant))
    return {
        "ok": True,
        "scope": scope,
        "shown_scope": _scope_lines(grant, scope),
        "scopes": [
            {"scope": choice, "shown": _scope_lines(grant, choice)}
            for choice in preview.scopes
            if not redact(choice).masked
        ],
        "past": [similar_view(other) for other in preview.past if listed(other)],
        "pending": [_taken_view(other, who) for other in preview.pending if listed(other)],
        "replay": _replay_view(store, preview.replay, who),
    }


@router.post("/policy/replay", "Replay a policy", ReplayView)
def replay_policy(
    service: CurrentService, who: CurrentAdmin, body: Sent[ReplayBody]
) -> JsonResponse:
    """Judge the newest calls in the store by another policy: what would have been different?

    The counts say something about the arguments of every call, masked ones included. So this is for
    admins, and is recorded.
    """
    try:
        policy = Policy.from_toml(body.policy)
        about: dict[str, Json] = {"policy": body.policy, "since": body.since}
        service.store.transact(Note(type="policy_replayed", actor=who.name, body=about))
        replay = service.inbox.replay_sync(policy, since=body.since, most=MOST_REPLAYED)
    except InvalidPolicy as error:
        raise InvalidCall(str(error), "policy") from None
    return JsonResponse(_replay_view(service.store, replay, who))


@router.get("/policy/observed", "Report the second policy", ReplayView, 429)
def observe_policy(
    store: CurrentStore,
    who: CurrentAdmin,
    since: Annotated[
        str, Query(pattern=r"^[1-9][0-9]{0,4}[smhd]$", description="how far back: `12h`, `30d`")
    ] = "30d",
) -> JsonResponse:
    """Return what the second policy would have done with the calls that were made: it judged each
    of them next to the policy in force, and decided nothing."""
    try:
        start = store.now() - round((parse_duration(since, "since") or 0) * SECOND)
    except InvalidPolicy as error:
        raise InvalidCall(str(error), "since") from None
    replay = replay_observed(store, start, MOST_REPLAYED)
    return JsonResponse(_replay_view(store, replay, who))


def _replay_view(store: Store, replay: Replay, who: Identity) -> Json:
    """Return a replay, with those of its calls that a person may see."""

    def sees(call: Call) -> bool:
        shown = if_readable(request_in, store, call)
        return shown is not None and may_see(who.reviewer, shown)

    differences = [one for one in replay.listed() if sees(one.call)]
    disagreements = [one for one in replay.disagreements if sees(one.call)]
    visible = replace(replay, differences=differences, disagreements=disagreements)
    return inert(replay_json(visible))


#: Stands for a key that one side does not have.
_ABSENT = object()


def _diff(before: Json, after: Json, path: str = "") -> list[dict[str, Json]]:
    """Return what differs: objects are compared key by key, everything else as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            entry
            for key in keys
            for entry in _diff(
                before.get(key, _ABSENT),
                after.get(key, _ABSENT),
                f"{path}.{text.inline(key)}" if path else text.inline(key),
            )
        ]
    in_both = before is not _ABSENT and after is not _ABSENT
    if in_both and codec.dumps(before) == codec.dumps(after):  # in JSON, 1, 1.0 and true differ
        return []
    return [{"path": path, "before": _as_text(before), "after": _as_text(after)}]


def _as_text(value: Json) -> str | None:
    return None if value is _ABSENT else "\n".join(text.lines(value))


# -- suggestions


@router.get("/suggestions", "List suggestions", page_of(SuggestionView))
def list_suggestions(service: CurrentService, who: CurrentReviewer) -> JsonResponse:
    """List the grants that ten or more equal approvals suggest, and that you could give.

    Each comes with its replay over the calls that you may see, and as a rule for a policy file.
    """
    sees = partial(may_see, who.reviewer)
    suggestions = service.inbox.suggestions_sync(by=who.reviewer, sees=sees)
    views = [_suggestion_view(service.store, one, who) for one in suggestions]
    return JsonResponse({"items": views, "next": None})


@router.post("/suggestions/{suggestion_id}/grant", "Accept a suggestion", GrantView, 404, 409)
def accept_suggestion(
    service: CurrentService,
    who: CurrentReviewer,
    suggestion_id: Annotated[str, Path(description="as in `GET /api/suggestions`")],
    body: MaySend[AcceptBody],
) -> JsonResponse:
    """Give the grant that is suggested. 404 if what people decided does not suggest it any more."""
    grant = service.inbox.accept_suggestion_sync(
        suggestion_id, ends_in=body.ends_in, by=who.reviewer
    )
    return JsonResponse(_grant_views(service.store, [grant])["items"][0])


def _suggestion_view(store: Store, suggestion: Suggestion, who: Identity) -> dict[str, Json]:
    grant = suggestion.grant
    patterns: list[dict[str, Json]] = [
        {
            "argument": text.inline(pattern.argument),
            "kind": pattern.kind,
            "value": inert(pattern.value),
            "shown": text.inline(pattern.sentence),
        }
        for pattern in suggestion.pattern
    ]
    lines = [pattern["shown"] for pattern in patterns]
    return {
        "id": suggestion.id,
        "agent": text.inline(grant.agent),
        "tool": text.inline(grant.tool),
        "risk": suggestion.risk,
        "pattern": patterns,
        "shown_scope": lines or _scope_lines(grant, _masked_scope(store, grant)),
        "count": suggestion.count,
        "examples": [similar_view(example) for example in suggestion.examples],
        "pending": [_taken_view(other, who) for other in suggestion.pending],
        "ends_in": ENDS_IN,
        "replay": _replay_view(store, suggestion.replay, who),
        "rule": suggestion.rule,
        "no_rule": suggestion.no_rule,
    }


def _taken_view(other: SaysoRequest, who: Identity) -> dict[str, Json]:
    return {**similar_view(other), "digest": request_view(other, who.reviewer)["digest"]}


# -- grants


@grants_router.get("", "List grants", GrantPage)
def list_grants(
    service: CurrentService,
    who: CurrentReviewer,
    all: Annotated[bool, Query(description="also list grants that have ended")] = False,
) -> JsonResponse:
    """List what runs without asking, until when, and who granted it."""
    grants = _visible_grants(service, who, live_only=not all)
    return JsonResponse({**_grant_views(service.store, grants), "next": None})


@grants_router.delete("/{grant_id}", "Revoke a grant", GrantView, 404)
def revoke_grant(
    service: CurrentService,
    who: CurrentReviewer,
    grant_id: Annotated[str, Path(description="the grant's id, as in `GET /api/grants`")],
) -> JsonResponse:
    """End a grant now. The calls that it covered need approval again."""
    if not any(g.id == grant_id for g in _visible_grants(service, who, live_only=False)):
        raise NotFound(f"no grant {grant_id!r:.80}: see GET /api/grants")
    grant = service.inbox.revoke_sync(grant_id, by=who.name)
    return JsonResponse(_grant_views(service.store, [grant])["items"][0])


def _visible_grants(service: Service, who: Identity, *, live_only: bool) -> list[Grant]:
    """Return the grants that this person may see.

    A scope contains arguments, so it is visible to the reviewers of the call that it came from.
    """
    grants = service.inbox.grants_sync(live_only=live_only)
    if who.role == "admin":
        return list(grants)
    names = names_of(who.reviewer)
    return [grant for grant in grants if grant_audience(grant.scope, grant.by).includes(names)]


# -- refusals


@refusals_router.get("", "List refusals", page_of(RefusalView), 404)
def list_refusals(
    service: CurrentService,
    who: CurrentReviewer,
    all: Annotated[bool, Query(description="also list refusals that were lifted")] = False,
    after: Annotated[str | None, Query(description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="the size of a page")] = 100,
) -> JsonResponse:
    """List the rejections that count for equal calls, and who made them."""
    page = service.inbox.refusals_sync(live_only=not all, after=after, limit=limit)
    visible = _visible_refusals(service, who, page)
    following = page[-1].id if len(page) == limit else None
    items = [_refusal_view(service.store, refusal) for refusal in visible]
    return JsonResponse({"items": items, "next": following})


@refusals_router.delete("/{refusal_id}", "Lift a refusal", RefusalView, 404)
def lift_refusal(
    service: CurrentService,
    who: CurrentReviewer,
    refusal_id: Annotated[str, Path(description="the refusal's id, as in `GET /api/refusals`")],
) -> JsonResponse:
    """Ask people about equal calls again."""
    refusal = service.store.refusal(refusal_id)
    refusals = [] if refusal is None else [refusal]
    if not _visible_refusals(service, who, refusals):
        raise NotFound(f"no refusal {refusal_id!r:.80}: see GET /api/refusals")
    lifted = service.inbox.lift_refusal_sync(refusal_id, by=who.reviewer)
    return JsonResponse(_refusal_view(service.store, lifted))


def _visible_refusals(
    service: Service, who: Identity, refusals: Sequence[Refusal]
) -> list[Refusal]:
    """Return the refusals of requests that this person may see."""
    visible = []
    for refusal in refusals:
        call = if_readable(service.store.call, refusal.request)
        if call is not None and may_see(who.reviewer, call):
            visible.append(refusal)
    return visible


def _refusal_view(store: Store, refusal: Refusal) -> dict[str, Json]:
    call = if_readable(store.call, refusal.request)
    secrets = secrets_of_calls(store, [] if call is None else [call])
    return {
        "id": refusal.id,
        "request": refusal.request,
        "run": text.inline(refusal.run),
        "agent": text.inline(refusal.agent),
        "tool": text.inline(refusal.tool),
        "by": text.inline(refusal.by),
        "at": iso(refusal.at),
        "message": inert(redact(refusal.message, None, secrets).value),
        "ends_at": iso(refusal.ends),
        "overturn": refusal.overturn,
        "lifted_at": iso(refusal.lifted),
        "lifted_by": text.inline(refusal.lifted_by) or None,
    }


def _scope_lines(grant: Grant, scope: dict[str, Json]) -> list[str]:
    if sentence := scope_sentence(grant, scope):
        return [text.inline(sentence)]
    return text.lines(inert(scope)) if scope else ["any arguments"]


def _masked_scope(store: Store, grant: Grant) -> Any:
    secrets = secrets_of_scope(store, grant.scope, grant.tool_digest)
    return redact(displayed_scope(store, grant), None, secrets).value


def _grant_views(store: Store, grants: Sequence[Grant]) -> dict[str, list[Json]]:
    """Return grants with what is used of their limits, and the limits of rules."""
    budgets = grant_budgets(store, grants)
    return {
        "items": [_grant_view(store, grant, budgets[grant.id]) for grant in grants],
        "budgets": [
            {"tools": text.inline(name), **budget_json(state)}
            for name, state in rule_budgets(store)
        ],
    }


def _grant_view(store: Store, grant: Grant, budgets: Sequence[BudgetState]) -> dict[str, Json]:
    scope = _masked_scope(store, grant)
    return {
        "id": grant.id,
        "agent": text.inline(grant.agent),
        "tool": text.inline(grant.tool),
        "scope": scope,
        "shown_scope": _scope_lines(grant, scope),
        "by": text.inline(grant.by),
        "created_at": iso(grant.created),
        "ends_at": iso(grant.ends),
        "uses_left": grant.uses_left,
        "steps_left": steps_left(grant),
        "revoked_at": iso(grant.revoked),
        "live": grant.live(store.now()),
        "budgets": [budget_json(state) for state in budgets],
    }
