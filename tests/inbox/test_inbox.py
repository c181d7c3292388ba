"""The inbox: pending requests, their contents, decisions, and many at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cases import RUN, Case, person

from sayso import (
    AlreadyDecided,
    Approve,
    Conflict,
    Edit,
    InvalidCall,
    InvalidDecision,
    NotFound,
    Option,
    Question,
    Reject,
    Request,
    Respond,
    StoreError,
)
from sayso.inbox.inbox import RequestReader
from sayso.stores.base import Viewer
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.views import request_json


def ask(case: Case, number: int, **options: Any) -> Request:
    return case.paused(lambda: case.paying(**options)("bo", number), f"run {number}")


# -- reading


def test_search_finds_requests_of_any_status(case: Case) -> None:
    asked = [ask(case, number) for number in range(2)]
    case.inbox.decide_sync(asked[0], asked[0].reject("no"), by="ana")
    assert {found.id for found in case.inbox.search_sync().items} == {each.id for each in asked}
    assert [found.id for found in case.inbox.search_sync(status="pending").items] == [asked[1].id]


def test_pending_is_oldest_first_and_paged(case: Case) -> None:
    asked = [ask(case, number) for number in range(7)]
    page = case.inbox.pending_sync(limit=3)
    found = list(page.items)
    while page.next is not None:
        page = case.inbox.pending_sync(limit=3, after=page.next)
        found += page.items
    assert found == asked


@pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
def test_full_last_page_has_no_next(case: Case, sort: str) -> None:
    for number in range(4):
        ask(case, number)
    first = case.inbox.pending_sync(limit=2, sort=sort)
    second = case.inbox.pending_sync(limit=2, sort=sort, after=first.next)
    assert [len(first.items), len(second.items), second.next] == [2, 2, None]
    assert case.inbox.pending_sync(limit=4, sort=sort, q="pay").next is None


@pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
def test_every_order_pages_without_losing_anything(timed: Case, sort: str) -> None:
    ends = [50, None, 10, 40, None, 20, 30, 20]
    asked = [ask(timed, n, expires_in=end) for n, end in enumerate(ends)]
    found: list[Request] = []
    after = None
    while len(found) < 20:
        page = timed.inbox.pending_sync(limit=3, sort=sort, after=after)
        found += page.items
        if (after := page.next) is None:
            break
    numbers = [asked.index(request) for request in found]
    wanted = {
        "oldest": [0, 1, 2, 3, 4, 5, 6, 7],
        "newest": [7, 6, 5, 4, 3, 2, 1, 0],
        "expiring": [2, 5, 7, 6, 3, 0, 1, 4],
    }
    assert numbers == wanted[sort]


def test_filters(case: Case) -> None:
    first = ask(case, 1, note="for the ministry")
    second = case.paused(lambda: case.gate.ask_sync("Which colour?"), "run 2")
    other = Case(case.store, agent="other")
    third = ask(other, 3)

    def found(**filters: Any) -> list[str]:
        return [request.id for request in case.inbox.pending_sync(**filters).items]

    assert found(kind="question") == [second.id]
    assert found(kind="approval") == [first.id, third.id]
    assert found(agent="other") == [third.id]
    assert found(tool="pay") == [first.id, third.id]
    assert found(run="run 2") == found(thread="run 2") == [second.id]
    assert found(q="ministry") == []  # the agent's own words are not what it is found by
    assert found(q=third.id[:12]) == [third.id]
    assert found(q="%") == found(q="p_y") == found(q="\\") == []
    assert found(q="PAY") == [first.id, third.id]


@pytest.mark.parametrize(
    "filters",
    [
        {"color": "red"},
        {"status": "done"},
        {"sort": "random"},
        {"limit": 0},
        {"limit": 501},
        {"limit": "5"},
        {"limit": True},
        {"after": "x"},
        {"after": [1]},
        {"status": None},
        {"status": ["pending"]},
        {"kind": "aproval"},
        {"risk": "huge"},
        {"agent": 5},
        {"q": ["tea"]},
        {"expires_within": 0},
        {"expires_within": True},
        {"expires_within": "1h"},
    ],
    ids=str,
)
def test_invalid_filter_is_refused(case: Case, filters: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall) as refused:
        case.inbox.history_sync(**filters)
    assert refused.value.path == ("" if "color" in filters else next(iter(filters)))


def test_history_shows_each_final_status(timed: Case, clock: FakeClock) -> None:
    requests = [ask(timed, number, expires_in=60) for number in range(6)]
    approved, edited, rejected, responded, cancelled, _ = requests
    timed.decide(approved.approve())
    timed.decide(edited.edit({"amount": 100}))
    timed.decide(rejected.reject("no"))
    timed.decide(responded.respond("by hand"))
    timed.inbox.cancel_sync(cancelled.id, by="ana")
    clock.advance(60)
    closed = {r.id: r.status for r in timed.inbox.history_sync().items}
    assert list(closed) == [request.id for request in reversed(requests)]
    assert list(closed.values()) == [
        "expired", "cancelled", "responded", "rejected", "edited", "approved",
    ]  # fmt: skip
    for status in closed.values():
        (only,) = timed.inbox.history_sync(status=status).items
        assert only.status == status
    assert len(timed.inbox.history_sync(status="any").items) == 6


def test_request_is_found_by_id_prefix(case: Case) -> None:
    request = ask(case, 1)
    other = ask(case, 2)
    assert case.inbox.find_sync(request.id) == request
    assert case.inbox.find_sync(request.id[:14]) == request
    with pytest.raises(NotFound, match="type more of it") as several:
        case.inbox.find_sync("req_")
    assert request.id in str(several.value)
    assert other.id in str(several.value)
    for wrong in ("xyz", ""):
        with pytest.raises(NotFound, match="sayso inbox"):
            case.inbox.find_sync(wrong)
    assert case.inbox.find_sync(other.id[:14]) == other


def test_allowed_call_is_no_request(case: Case) -> None:
    case.enter(lambda: case.paying(needs_approval=False)("bo"))
    (call,) = case.store.calls_of(RUN)
    with pytest.raises(NotFound):
        case.inbox.get_sync(call.id)
    assert case.inbox.history_sync().items == ()


def test_events_list_the_life_of_a_request(case: Case) -> None:
    pay = case.paying(quorum=2)
    request = case.paused(lambda: pay("bo"))
    case.paused(lambda: pay("cy"))
    case.decide(request.approve(), person("ana"))
    case.decide(request.approve(), person("bea"))
    case.enter(lambda: pay("bo"))
    told = [(event.type, event.actor) for event in case.inbox.events_sync(request.id)]
    assert [type for type, _ in told] == ["asked", "voted", "decided", "started", "recorded"]
    assert [actor for _, actor in told[:3]] == ["agent:bot", "ana", "bea"]


def test_request_as_json_has_the_same_fields(case: Case) -> None:
    request = ask(case, 1, risk="high", reviewers=["ana"])
    decided = case.decide(request.edit({"amount": 2}))
    shown = request_json(decided)
    assert set(shown) == {name for name in Request.__dataclass_fields__}
    assert shown["decision"]["args"] == {"to": "bo", "amount": 2}
    assert shown["original"] == {"to": "bo", "amount": 1}
    assert shown["status"] == "edited"


# -- deciding


def test_edit_keeps_unnamed_arguments(case: Case) -> None:
    pay = case.paying()
    request = case.paused(lambda: pay("bo", 50))
    given = Edit({"to": "cy"}, request=request.id, seen_digest=request.digest)
    edited = case.decide(given)
    assert edited.args == {"to": "cy", "amount": 50}
    assert edited.decision is not None
    assert edited.decision.args == {"to": "cy", "amount": 50}  # the complete arguments
    assert case.enter(lambda: pay("bo", 50)) == "paid cy 50"
    assert case.ran == [("cy", 50)]


def test_removed_argument_gets_its_default(case: Case) -> None:
    pay = case.paying()
    request = case.paused(lambda: pay("bo", 50))
    given = Edit({"to": "cy"}, unset=["amount"], request=request.id, seen_digest=request.digest)
    assert case.decide(given).args == {"to": "cy", "amount": 3}
    assert case.decide(given).args == {"to": "cy", "amount": 3}  # repeated, it is an echo
    assert case.enter(lambda: pay("bo", 50)) == "paid cy 3"


def test_edited_argument_is_replaced_entirely(case: Case) -> None:
    @case.gate.guard
    def save(doc: dict[str, Any], note: str | None = None) -> str:
        return f"{doc} {note}"

    request = case.paused(lambda: save({"a": 1, "b": {"c": 2}}, "x"))
    edited = case.decide(request.edit({"doc": {"b": {"d": 3}}}, unset=["note"]))
    assert edited.args == {"doc": {"b": {"d": 3}}, "note": None}


def test_edit_of_changed_request_is_conflict(case: Case) -> None:
    """What the edit names may be gone: the request has changed since it was seen."""
    pay = case.paying(quorum=2)
    request = case.paused(lambda: pay("bo", 50))
    case.decide(request.edit({"to": "cy"}), person("ana"))
    with pytest.raises(Conflict, match="not what you saw"):
        case.decide(request.edit({"amount": 1}), person("bea"))


def test_edit_without_changes_decides(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo", 50))
    assert case.decide(request.edit({})).status == "edited"


def test_repeated_decision_is_an_echo(case: Case) -> None:
    makers: list[Any] = [
        Request.approve,
        lambda r: r.edit({"amount": 5}),
        lambda r: r.edit(unset=["amount"]),
        lambda r: r.reject("no"),
        lambda r: r.respond("x"),
    ]
    for number, make in enumerate(makers):
        request = ask(case, number)
        first = case.decide(make(request))
        assert case.decide(make(request)) == first
        before = len(case.inbox.events_sync(request.id))
        with pytest.raises(AlreadyDecided, match="ana decided"):
            case.decide(make(request), "bea")
        with pytest.raises(AlreadyDecided, match="ana decided"):
            case.decide(request.reject("something else"))
        assert len(case.inbox.events_sync(request.id)) == before


def test_repeated_counted_vote_is_an_echo(case: Case) -> None:
    request = ask(case, 1, quorum=2)
    case.decide(request.approve(), person("ana"))
    done = case.decide(request.approve(), person("bea"))
    assert case.decide(request.approve(), person("ana")) == done
    with pytest.raises(AlreadyDecided, match="bea decided 'approve'"):
        case.decide(request.approve(), person("cy"))


def test_approval_needs_the_seen_digest(case: Case) -> None:
    request = ask(case, 1)
    for decision in (Approve(), Edit({"to": "bo", "amount": 2})):
        with pytest.raises(InvalidDecision, match="say what you saw"):
            case.inbox.decide_sync(request.id, decision, by="ana")
    with pytest.raises(Conflict, match="is not what you saw"):
        case.inbox.decide_sync(request.id, Approve(), by="ana", seen_digest="0" * 64)
    assert case.inbox.decide_sync(request.id, Reject("no"), by="ana").status == "rejected"


@pytest.mark.parametrize(
    ("error", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "No space left"), StoreError)],
    ids=["Ctrl-C", "full disk"],
)
def test_uncommitted_decision_has_no_effect(
    tmp_path: Path, error: BaseException, raised: type[BaseException]
) -> None:
    case = Case(SqliteStore(tmp_path / "sayso.db"))
    request = ask(case, 1)

    def fail(name: str, when: str) -> None:
        if (name, when) == ("decide", "before"):
            raise error

    case.store.boundary = fail
    with pytest.raises(raised):
        case.decide(request.approve())
    case.store.boundary = None
    other = ask(case, 2)  # the next commit carries nothing of it along
    assert case.inbox.pending_sync().items == (request, other)
    assert [event.type for event in case.inbox.events_sync(request.id)] == ["asked"]
    assert case.decide(request.reject("no"), "bea").status == "rejected"
    case.gate.close()


def test_channel_and_the_assurance_are_recorded(case: Case) -> None:
    request = ask(case, 1)
    decided = case.decide(request.approve(), person("ana"), channel="chat")
    assert decided.decision is not None
    assert (decided.decision.channel, decided.decision.assurance) == ("chat", "token")


@pytest.mark.parametrize(
    ("question", "good", "bad"),
    [
        (
            Question("Which?", (Option("red"), Option("blue"))),
            ["red"],
            ["green", "", None, ["red"]],
        ),
        (Question("How many?", (Option("one", 1), Option("two", 2))), [1], [True, 1.0, "1", "one"]),
        (
            Question("Which?", (Option("red"), Option("blue")), multiple=True),
            [["red"], ["blue", "red"]],
            [[], ["red", "red"], ["green"], "red", {"red": 1}],
        ),
        (
            Question("Which?", (Option("red"), Option("blue")), free_text=True),
            ["blue", "a nice mauve"],
            ["  ", 5],
        ),
        (Question("Well?"), ["fine"], ["", 5, None]),
        (
            Question("Age?", schema={"type": "integer", "minimum": 18}),
            [18],
            [17, "18", None, 18.5],
        ),
    ],
    ids=lambda value: value.text if isinstance(value, Question) else "",
)
def test_answers_are_checked_in_front_of_the_person(
    case: Case, question: Question, good: list[Any], bad: list[Any]
) -> None:
    for number, value in enumerate(good):
        request = case.paused(lambda: case.gate.ask_sync(question), f"run {number}")
        for wrong in bad:
            with pytest.raises(InvalidDecision) as caught:
                case.decide(request.respond(wrong))
            assert caught.value.path.startswith("value")
        assert case.inbox.get_sync(request.id) == request
        case.decide(request.respond(value))
        assert case.enter(lambda: case.gate.ask_sync(question), f"run {number}") == value


# -- many at once


def test_batch_refusal_names_the_risky_request(case: Case) -> None:
    low, risky = ask(case, 1), ask(case, 2, risk="critical")
    with pytest.raises(InvalidDecision, match=f"{risky.id} is critical risk"):
        case.inbox.decide_many_sync([low.approve(), risky.approve()], by="ana")


def test_similar_requests_are_decided_in_a_batch(case: Case) -> None:
    requests = [ask(case, number) for number in range(5)]
    case.decide(requests[2].reject("not this"), "bea")
    outcomes = case.inbox.decide_many_sync([r.approve() for r in requests], by="ana")
    assert [outcome.id for outcome in outcomes] == [request.id for request in requests]
    assert [outcome.error is None for outcome in outcomes] == [True, True, False, True, True]
    assert isinstance(outcomes[2].error, AlreadyDecided)
    assert case.inbox.pending_sync().items == ()


@pytest.mark.parametrize("given", [None, 5, "yes", Approve()])
def test_many_are_a_list(case: Case, given: Any) -> None:
    with pytest.raises(InvalidDecision, match="give a list of decisions"):
        case.inbox.decide_many_sync(given, by="ana")


def test_dissimilar_requests_are_refused_in_a_batch(case: Case) -> None:
    one, two = ask(case, 1), ask(case, 2)
    question = case.paused(lambda: case.gate.ask_sync("Which?"), "q")
    risky = ask(case, 3, risk="high")
    other = ask(Case(case.store, agent="other"), 4)
    unlike: list[Any] = [
        [one.approve(), two.reject()],
        [one.edit({"amount": 1}), two.edit({"amount": 1})],
        [one.reject(), question.reject()],
        [one.approve(), other.approve()],
        [one.approve(), risky.approve()],
        [one.approve(), Approve()],
        [one.approve(), None],
        [one.approve(), Respond(5, request="req_none")],
    ]
    for decisions in unlike:
        with pytest.raises((InvalidDecision, NotFound)):
            case.inbox.decide_many_sync(decisions, by="ana")
    assert len(case.inbox.pending_sync().items) == 5
    with pytest.raises(TypeError):
        case.inbox.decide_many_sync([one.approve()], by="ana", chanel="chat")
    assert case.inbox.decide_many_sync([], by="ana") == []


# -- listening


async def test_watch_yields_committed_events(case: Case) -> None:
    heard: list[str] = []

    async def listen() -> None:
        async for event in case.inbox.watch():
            heard.append(event.type)
            if event.type == "decided":
                return

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.02)
    request = await asyncio.to_thread(ask, case, 1)
    await case.inbox.decide(request.id, request.approve(), by="ana")
    await asyncio.wait_for(listening, 20)
    assert heard == ["asked", "decided"]
    first = await anext(case.inbox.watch(after=""))
    assert (await anext(case.inbox.watch(after=str(first.pos)))).type == "decided"
    with pytest.raises(InvalidCall, match="after must be text"):
        case.inbox.watch(after=first.pos)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("q", "tools"),
    [
        ("tool:pay", ["pay_invoice"]),
        ('tool:"PAY_"', ["pay_invoice"]),
        ("agent:bill", ["pay_invoice"]),
        ("risk:high", ["pay_invoice"]),
        ("kind:question", []),
        ("hooli risk:high", ["pay_invoice"]),
        ("hooli risk:low", []),
        ("older:1h", ["pay_invoice"]),
        ("newer:1h", ["send_mail"]),
        ("hooli older:1h tool:pay", ["pay_invoice"]),
        ("newer:x", []),
        ("requester:ben", ["pay_invoice"]),
    ],
)
def test_filters_are_words_of_a_search(
    timed: Case, clock: FakeClock, q: str, tools: list[str]
) -> None:
    billing = Case(timed.store, agent="Billing")
    pay = billing.gate.guard(name="pay_invoice", needs_approval=True, risk="high")(lambda to: to)
    billing.paused(lambda: pay("hooli"), "first", requester="ben")
    clock.advance(2 * 3600)
    send = timed.gate.guard(name="send_mail", needs_approval=True)(lambda to: to)
    timed.paused(lambda: send("initech"), "second")
    assert [request.tool for request in timed.inbox.pending_sync(q=q)] == tools
    groups = RequestReader(timed.store).groups({"q": q}, Viewer())
    assert [group.tool for group in groups] == tools
