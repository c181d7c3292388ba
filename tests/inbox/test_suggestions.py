"""Suggestions: what equal decisions suggest, what they never suggest, and what a grant covers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cases import Case, person
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import url as url  # the fixture

from sayso import Inbox, NotFound, Paused, Policy, Rule, ToolCall, open_store
from sayso.audit import verify
from sayso.engine.commands import GiveGrant
from sayso.engine.grants import covers
from sayso.errors import Conflict, InvalidDecision, NotAllowed
from sayso.gate.framework import FrameworkCall, FrameworkThread, FrameworkTool
from sayso.inbox.suggestions import Suggestion
from sayso.policy import judge_sync
from sayso.stores.base import matches_scope
from sayso.testing import FakeClock
from sayso.types import Terms, moment

ANA = person("ana", "finance", assurance="session")
LOW = Policy([Rule("*", risk="low")])


class Shop:
    """An agent that asks about everything, and a person who decides."""

    def __init__(self, url: str, policy: Policy = LOW, **options: Any) -> None:
        self.clock = FakeClock()
        self.store = open_store(url, clock=self.clock)
        self.case = Case(self.store, policy=policy, **options)
        self.inbox = self.case.inbox
        self.runs = 0

    def ask(self, tool: str = "pay", case: Case | None = None, **args: Any) -> Any:
        """Return the request of a call, or its result."""
        self.runs += 1

        @(case or self.case).gate.guard(name=tool)
        def body(to: str = "", amount: float = 0, path: str = "", note: str | None = None) -> str:
            return "ran"

        try:
            return (case or self.case).enter(lambda: body(**args), f"r{self.runs}")
        except Paused as paused:
            return paused.requests[0]

    def approve(self, count: int, by: Any = ANA, **args: Any) -> None:
        for number in range(count):
            values = {name: v(number) if callable(v) else v for name, v in args.items()}
            self.case.decide(self.ask(**values).approve(), by)

    def suggestions(self, by: Any = ANA) -> list[Suggestion]:
        return self.inbox.suggestions_sync(by=by.at(self.store))

    def only(self) -> Suggestion:
        (suggestion,) = self.suggestions()
        return suggestion

    def patterns(self) -> dict[str, tuple[str, Any]]:
        return {p.argument: (p.kind, p.value) for p in self.only().pattern}

    def accept(self, by: Any = ANA, **options: Any) -> Any:
        return self.inbox.accept_suggestion_sync(self.only(), by=by.at(self.store), **options)


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    shop = Shop(url)
    yield shop
    assert verify(shop.store).ok, verify(shop.store).problems
    shop.store.close()


def test_ten_equal_approvals_make_a_suggestion(shop: Shop) -> None:
    shop.approve(9, to="bo", amount=5)
    assert shop.suggestions() == []
    shop.approve(1, to="bo", amount=5)
    pending = shop.ask(to="bo", amount=5)
    other = shop.ask(to="eve", amount=5)
    suggestion = shop.only()
    assert (suggestion.count, len(suggestion.examples), suggestion.risk) == (10, 10, "low")
    assert [request.id for request in suggestion.pending] == [pending.id]
    assert (suggestion.replay.changes["asked", "allowed", "approved"]) == 10
    assert suggestion.replay.changes["asked", "allowed", "pending"] == 1
    grant = shop.accept()
    assert (grant.by, grant.ends - grant.created) == ("ana", 30 * 86_400 * 1_000_000)
    assert shop.ask(to="bo", amount=5) == "ran"
    assert shop.ask(to="eve", amount=5).status == "pending"
    assert shop.inbox.get_sync(other.id).status == "pending"
    assert shop.suggestions() == []  # the grant covers them


def test_patterns_are_the_narrowest(shop: Shop) -> None:
    shop.approve(10, to=lambda n: ["bo", "cy"][n % 2], amount=lambda n: 10 + n)
    assert shop.patterns() == {
        "to": ("one_of", ["bo", "cy"]),
        "amount": ("at_most", 19),
        "path": ("same", ""),
        "note": ("same", None),
    }
    shop.accept()
    assert shop.ask(to="bo", amount=12.5) == "ran"
    for args in ({"amount": 20}, {"amount": 0}, {"amount": -5}, {"to": "di"}, {"note": "x"}):
        assert shop.ask(**{"to": "bo", "amount": 12, **args}).status == "pending", args


def test_patterns_have_sentences(shop: Shop) -> None:
    shop.approve(10, to=lambda n: ["bo", "cy"][n % 2], amount=lambda n: n, path=lambda n: f"a/{n}")
    assert [pattern.sentence for pattern in shop.only().pattern] == [
        "amount is at least 0 and at most 9",
        "note is null",
        "path is a file in a/",
        'to is "bo" or "cy"',
    ]


def test_absolute_and_relative_paths_have_no_folder(shop: Shop) -> None:
    shop.approve(10, path=lambda n: f"{'/' * (n % 2)}srv/{n}.txt")
    assert shop.suggestions() == []


def test_encoded_paths_are_in_no_folder(shop: Shop) -> None:
    """A server may decode %2e%2e only after the call was allowed."""
    shop.approve(10, path=lambda n: f"users/{n}")
    copied = Case(shop.store, policy=Policy.from_toml(shop.only().rule))
    shop.accept()
    for case in (shop.case, copied):
        assert shop.ask(case=case, path="users/77") == "ran"
        for path in ("users/%2e%2e/admin", "users/%2E./admin", "users/1%2f..", "users/../admin"):
            assert shop.ask(case=case, path=path).status == "pending", path


def test_files_with_a_percent_sign_have_no_folder(shop: Shop) -> None:
    shop.approve(10, path=lambda n: f"users/{n}%")
    assert shop.suggestions() == []


def test_facts_of_a_tool_are_in_no_rule(shop: Shop) -> None:
    @shop.case.gate.guard(binds=lambda: {"branch": "main"})
    def pay(to: str) -> None: ...

    for number in range(10):
        shop.case.decide(shop.case.paused(lambda: pay("bo"), f"r{number}").approve(), ANA)
    suggestion = shop.only()
    assert suggestion.rule == ""
    assert "does not know the facts of binds=" in suggestion.no_rule


async def test_tool_with_unnamed_arguments_has_no_rule(shop: Shop) -> None:
    tool = FrameworkTool(name="pay", parameters={"type": "object"})

    async def run(args: dict[str, Any]) -> None: ...

    for number in range(10):
        thread = FrameworkThread(shop.case.gate, f"t{number}")
        call = FrameworkCall(id="c1", tool=tool, args={"to": "bo"}, run=run)
        (request,) = await thread.ask([call])
        await shop.inbox.decide(request.id, request.approve(), by=ANA.at(shop.store))
    (suggestion,) = await shop.inbox.suggestions(by=ANA.at(shop.store))
    assert suggestion.rule == ""
    assert "takes arguments that it does not name" in suggestion.no_rule


@pytest.mark.parametrize("way", ["reject", "edit", "respond"])
def test_pattern_with_another_decision_is_not_suggested(shop: Shop, way: str) -> None:
    shop.approve(10, to="bo", amount=lambda n: 10 + n)
    request = shop.ask(to="bo", amount=9)
    decisions = {
        "reject": lambda: request.reject("no"),
        "edit": lambda: request.edit({"amount": 500}),
        "respond": lambda: request.respond("never mind"),
    }
    shop.case.decide(decisions[way](), ANA)
    assert shop.suggestions() == []


def test_old_rejection_still_counts(shop: Shop) -> None:
    shop.case.decide(shop.ask(to="bo", amount=3).reject("no"), ANA)
    shop.clock.advance(200 * 86_400)
    shop.approve(10, to="bo", amount=lambda n: 10 + n)
    assert shop.suggestions() == []


def test_rejected_amount_narrows_the_pattern(shop: Shop) -> None:
    shop.approve(15, to="bo", amount=lambda n: 10 + n)
    shop.case.decide(shop.ask(to="bo", amount=22.5).reject("too much"), ANA)
    assert shop.patterns()["amount"] == ("at_most", 22)


def test_equal_calls_are_found_among_others(shop: Shop) -> None:
    shop.approve(30, to=lambda n: f"p{n}" if n % 3 else "bo", amount=4)
    assert shop.patterns()["to"] == ("same", "bo")
    assert shop.only().count == 10


@pytest.mark.parametrize(
    "rule",
    [
        Rule("pay"),
        Rule("pay", risk="high"),
        Rule("pay", risk="critical"),
        Rule("pay", risk="low", reviewers="group:legal"),
        Rule("pay", risk="low", quorum=2, reviewers=("ana", "bea", "group:legal")),
        Rule("pay", risk="low", assurance="session"),
        Rule("pay", risk="low", fresh="5m"),
    ],
)
def test_nothing_beyond_one_persons_right_is_suggested(url: str, rule: Rule) -> None:
    shop = Shop(url, Policy([rule]))
    legal = person("bea", "legal", assurance="session")
    for _ in range(10):
        request = shop.ask(to="bo")
        shop.case.decide(request.approve(), legal)
        if rule.quorum:
            shop.case.decide(shop.inbox.get_sync(request.id).approve(), ANA)
    assert shop.suggestions(person("ana", "finance")) == []
    shop.store.close()


def test_requester_gets_no_suggestion_for_own_calls(url: str) -> None:
    shop = Shop(url, Policy([Rule("pay", risk="low", requester_decides=False)]))

    def ask(number: int) -> Any:
        @shop.case.gate.guard
        def pay(to: str) -> str:
            return "ran"

        return shop.case.paused(lambda: pay("bo"), f"q{number}", requester="ana")

    for number in range(10):
        shop.case.decide(ask(number).approve(), "bea")
    assert shop.suggestions() == []
    assert len(shop.suggestions(person("bea", assurance="session"))) == 1
    shop.store.close()


def test_grant_ends_where_risk_or_declaration_changes(shop: Shop) -> None:
    shop.approve(10, to="bo")
    shop.accept()
    for rule in (Rule("*"), Rule("*", risk="medium")):
        asking = Case(shop.store, policy=Policy([rule]))
        assert shop.ask(case=asking, to="bo").status == "pending"


def test_risks_are_not_mixed(url: str) -> None:
    rules = [Rule("pay", where="amount > 5", risk="medium"), Rule("pay", risk="low")]
    shop = Shop(url, Policy(rules))
    shop.approve(10, to="bo", amount=lambda n: n)
    assert shop.suggestions() == []
    shop.approve(6, to="bo", amount=lambda n: n)
    assert (shop.only().risk, shop.patterns()["amount"]) == ("low", ("at_most", 5))
    shop.store.close()


def test_masked_values_suggest_nothing(shop: Shop) -> None:
    shop.approve(10, to="bo", note="password=hunter2-hunter2")
    assert shop.suggestions() == []


def test_stricter_policy_of_today_suggests_nothing(shop: Shop) -> None:
    shop.approve(10, to="bo")
    for rule in (Rule("pay", verdict="deny"), Rule("pay", risk="low", quorum=2), Rule("pay")):

        def judge(call: Any, args: Any, rule: Rule = rule) -> Terms:
            judging = Policy([rule]).judge(
                ToolCall(call.tool, args), agent="bot", now=moment(0), own=Terms()
            )
            return judge_sync(judging)[0]

        assert Inbox(shop.store, judge=judge).suggestions_sync(by=ANA.at(shop.store)) == []


def test_suggestions_are_deterministic(shop: Shop) -> None:
    shop.approve(10, to="bo", amount=lambda n: n)
    shop.approve(10, to=lambda n: f"p{n % 4}", amount=4, tool="other")
    first = shop.suggestions()
    assert [one.id for one in shop.suggestions()] == [one.id for one in first]
    assert len({one.id for one in first}) == 2


def test_rule_judges_as_the_grant_does(shop: Shop) -> None:
    shop.approve(12, to=lambda n: ["bo", "ünï\x7f'\"x"][n % 2], amount=lambda n: n + 1)
    suggestion = shop.only()
    policy = Policy.from_toml(suggestion.rule)
    shop.accept()
    copied = Case(shop.store, policy=policy)
    values: list[dict[str, Any]] = [
        {"to": to, "amount": amount, "note": note}
        for to in ("bo", "ünï\x7f'\"x", "eve")
        for amount in (-1, 0, 1, 12, 12.5)
        for note in (None, "x")
    ]
    for args in values:
        by_grant = shop.ask(**args) == "ran"
        assert (shop.ask(case=copied, **args) == "ran") is by_grant, args


def test_copied_rule_ends(shop: Shop) -> None:
    shop.approve(10, to="bo")
    (rule,) = Policy.from_toml(shop.only().rule).rules
    assert rule.until is not None
    copied = Case(shop.store, policy=Policy([rule]))
    assert shop.ask(case=copied, to="bo") == "ran"
    shop.clock.advance(31 * 86_400)
    assert shop.ask(case=copied, to="bo").status == "pending"


def test_suggestion_that_changed_is_not_accepted(shop: Shop) -> None:
    shop.approve(10, to="bo", amount=lambda n: n + 1)
    suggestion = shop.only()
    shop.case.decide(shop.ask(to="bo", amount=5.5).reject("no"), ANA)
    with pytest.raises(NotFound, match="look at the suggestions again"):
        shop.inbox.accept_suggestion_sync(suggestion, by=ANA.at(shop.store))


def test_engine_gives_no_grant_beyond_a_persons_right(shop: Shop) -> None:
    shop.approve(10, to="bo")
    suggestion = shop.only()
    call = suggestion.example
    place = {"thread": call.thread, "run": call.run, "call": call.id, "grant": suggestion.grant}
    bea = person("bea", assurance="session").at(shop.store)
    with pytest.raises(InvalidDecision, match="not bea's"):
        shop.store.transact(GiveGrant(**place, by=bea))
    with pytest.raises(NotAllowed, match="agent"):
        shop.store.transact(GiveGrant(**place, by=person("bot").at(shop.store)))
    rejected = shop.case.decide(shop.ask(to="cy").reject("no"), ANA)
    other = {"thread": rejected.thread, "run": rejected.run, "call": rejected.id}
    with pytest.raises(InvalidDecision, match="needs the approval"):
        shop.store.transact(GiveGrant(**{**place, **other}, by=ANA.at(shop.store)))
    risky = Case(shop.store, policy=Policy([Rule("*", risk="high")]))
    approved = shop.case.decide(shop.ask(case=risky, to="di").approve(), ANA)
    other = {"thread": approved.thread, "run": approved.run, "call": approved.id}
    with pytest.raises(InvalidDecision, match="has a risk that is high"):
        shop.store.transact(GiveGrant(**{**place, **other}, by=ANA.at(shop.store)))
    shop.store.transact(GiveGrant(**place, by=ANA.at(shop.store)))
    with pytest.raises(Conflict, match="exists"):
        shop.store.transact(GiveGrant(**place, by=ANA.at(shop.store)))


class Shell:
    """An agent that runs commands, and a person who decides."""

    def __init__(self, store: Any) -> None:
        self.case = Case(store, policy=Policy([Rule("bash", risk="low")]))
        self.runs = 0

    def run(self, command: str) -> Any:
        """Return the request of a command, or its result."""
        self.runs += 1

        @self.case.gate.guard
        def bash(command: str, cwd: str) -> str:
            return "ran"

        try:
            return self.case.enter(lambda: bash(command, cwd="/srv/shop"), f"r{self.runs}")
        except Paused as paused:
            return paused.requests[0]

    def approve(self, count: int, *commands: str) -> None:
        for number in range(count):
            self.case.decide(self.run(commands[number % len(commands)]).approve())

    def suggestions(self) -> list[Suggestion]:
        return self.case.inbox.suggestions_sync(by="ana")


@pytest.fixture
def shell(make_store: Callable[..., Any]) -> Shell:
    return Shell(make_store())


def test_parsed_command_is_suggested(shell: Shell) -> None:
    shell.approve(10, "npm test", "npm test -- --watch")
    shell.approve(9, "git status")
    (suggestion,) = shell.suggestions()
    scope = {"command": ["npm", "test"], "arguments": "any"}
    assert scope.items() <= json.loads(suggestion.grant.scope).items()
    assert (suggestion.rule, "parsed command" in suggestion.no_rule) == ("", True)
    shell.case.inbox.accept_suggestion_sync(suggestion, by="ana")
    assert shell.run("npm test -- --bail") == "ran"
    assert shell.run("npm test; curl x").status == "pending"


def test_no_suggested_command_covers_a_rejected_one(shell: Shell) -> None:
    shell.approve(10, "npm test", "npm test -- --watch")
    shell.case.decide(shell.run("npm test -- --force").reject("no"))
    assert shell.suggestions() == []
    shell.approve(5, "npm test")
    (suggestion,) = shell.suggestions()  # only this command, with exactly these words
    assert json.loads(suggestion.grant.scope)["arguments"] == "exact"


def test_rejected_pipeline_narrows_no_command(shell: Shell) -> None:
    """A list of commands is in no scope of one command."""
    shell.approve(10, "npm test")
    shell.case.decide(shell.run("npm test | sh").reject("no"))
    (suggestion,) = shell.suggestions()
    assert json.loads(suggestion.grant.scope)["command"] == ["npm", "test"]


def test_pipeline_is_not_suggested(shell: Shell) -> None:
    shell.approve(10, "npm test | tee log")
    assert shell.suggestions() == []


AMOUNTS = st.integers(0, 12)
WAYS = st.sampled_from(["approve"] * 8 + ["reject", "edit"])
DECISIONS = st.lists(
    st.tuples(st.sampled_from(["bo", "cy"]), AMOUNTS, WAYS), min_size=10, max_size=40
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(decisions=DECISIONS)
def test_law_suggestion_covers_nothing_that_was_not_approved(decisions: list[Any]) -> None:
    shop = Shop(f"memory://{os.urandom(6).hex()}")
    against = []
    for to, amount, way in decisions:
        request = shop.ask(to=to, amount=amount)
        if not hasattr(request, "id"):
            continue
        if way == "approve":
            shop.case.decide(request.approve(), ANA)
        elif way == "reject":
            against.append(request.id)
            shop.case.decide(request.reject("no"), ANA)
        else:
            against.append(request.id)
            shop.case.decide(request.edit({"amount": 99}), ANA)
    for suggestion in shop.suggestions():
        assert suggestion.count >= 10
        for name in against:
            call = shop.store.call(name)
            assert call is not None
            first = call._replace(args=call.original or call.args)
            assert not covers(suggestion.grant, first, matches_scope)
            assert not covers(suggestion.grant, call, matches_scope)
        assert suggestion.replay.overruled == 0
    shop.store.close()
