"""Plans: calls that were approved at once, what else asks, and what ends a plan."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from cases import Case, person
from pydantic import WithJsonSchema
from starlette.testclient import TestClient
from worlds import url as url  # the fixture

import sayso
from sayso import (
    Agent,
    InvalidCall,
    InvalidDecision,
    NotExecuted,
    Paused,
    Policy,
    Refused,
    Rejected,
    Rule,
    ToolCall,
    create_app,
    open_store,
    tool,
)
from sayso.audit import verify
from sayso.errors import Denied
from sayso.inbox.directory import change_person, remove_person
from sayso.redaction import redact, secrets_in
from sayso.testing import FakeClock, ScriptedModel, call, say
from sayso.types import Request

ANA = person("ana", "finance", assurance="session")
RULES = (
    Rule("banned", verdict="deny"),
    Rule("free", verdict="allow"),
    Rule("twice", quorum=2),
    Rule("finance", reviewers="group:finance"),
    Rule("legal", reviewers="group:legal"),
    Rule("fresh", fresh="5m"),
    Rule("passkey", assurance="passkey"),
    Rule("critical", risk="critical"),
)
TOOLS = ("pay", "mail", *(rule.tool[0] for rule in RULES))


NUMBERS = itertools.count()


class World:
    """An agent with a plan in one run."""

    def __init__(self, url: str, policy: Policy | None = None) -> None:
        self.clock = FakeClock()
        self.store = open_store(url, clock=self.clock)
        self.case = Case(self.store, policy=policy or Policy(RULES))
        self.inbox = self.case.inbox
        self.errors: list[Exception] = []
        self.tools = {name: self._guarded(name) for name in TOOLS}

    def _guarded(self, name: str) -> Callable[..., str]:
        # Each call is another one, also in another entry of the run.
        @self.case.gate.guard(name=name, key=lambda args: f"{next(NUMBERS)}")
        def body(number: int = 0) -> str:
            if self.errors:
                raise self.errors.pop()
            self.case.ran.append((name, number))
            return f"{name} {number}"

        return body

    def plan(self, *steps: tuple[str, int], run: str = "r1", **options: Any) -> Any:
        calls = [ToolCall(name, {"number": number}) for name, number in steps]
        return self.case.enter(
            lambda: self.case.gate.plan_sync(calls, **options), run, requester="rita"
        )

    def follow(self, *rules: Rule) -> None:
        """Replace the policy."""
        self.case.gate._policy._policy = Policy(rules)

    def proposed(self, *steps: tuple[str, int], **options: Any) -> Request:
        with pytest.raises(Paused) as caught:
            self.plan(*steps, **options)
        (request,) = caught.value.requests
        return request

    def approved(self, *steps: tuple[str, int], by: Any = ANA, **options: Any) -> Request:
        request = self.case.decide(self.proposed(*steps, **options).approve(), by)
        assert request.status == "approved"
        return request

    def runs(self, *steps: tuple[str, int], run: str = "r1") -> list[bool]:
        """Make calls, each in an entry of its own. Return which of them ran without asking."""
        ran = []
        for name, number in steps:
            before = len(self.case.ran)
            with contextlib.suppress(Paused):
                self.case.enter(functools.partial(self._kept, name, number), run, requester="rita")
            ran.append(len(self.case.ran) > before)
        return ran

    def _kept(self, name: str, number: int) -> None:
        """Make a call, and leave the run live."""
        self.tools[name](number=number)
        raise Paused("r1", ())


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    report = verify(world.store)
    assert report.ok, report.problems
    world.store.close()


A, B, C = ("pay", 1), ("mail", 2), ("pay", 3)


def test_approved_plan_runs_each_step_once_in_order(world: World) -> None:
    request = world.approved(A, B, C)
    assert [step["tool"] for step in request.args["steps"]] == ["pay", "mail", "pay"]
    assert world.runs(A, B, C) == [True, True, True]
    assert world.case.ran == [A, B, C]
    assert world.runs(("pay", 4), ("mail", 2)) == [False, False]
    calls = [call for call in world.store.calls_of("r1") if call.grant]
    assert {(call.source, call.decision.type) for call in calls if call.decision} == {
        ("plan", "grant")
    }
    (grant,) = world.inbox.grants_sync(live_only=False)
    assert grant.steps == tuple(call.id for call in calls)
    started = [event for event in world.store.chain("r1") if event.type == "started"]
    bodies = [json.loads(event.body) for event in started]
    assert [(body["grant"], body["step"]) for body in bodies] == [(grant.id, n) for n in range(3)]


def test_deviation_asks_and_the_plan_waits(world: World) -> None:
    world.approved(A, B, C)
    assert world.runs(B) == [False]  # not the next one
    assert world.runs(("pay", 9)) == [False]  # other arguments
    assert world.runs(A, A) == [True, False]  # once
    assert world.runs(C, B, C) == [False, True, True]
    assert ("pay", 9) not in world.case.ran


def test_pending_deviation_does_not_take_a_step(world: World) -> None:
    world.approved(A, B)
    assert world.runs(("mail", 7), A, B) == [False, True, True]


def test_any_order_runs_each_step_once(world: World) -> None:
    world.approved(A, B, C, A, any_order=True)
    assert world.runs(C, A, ("mail", 9), A) == [True, True, False, True]
    assert world.runs(A, B, C) == [False, True, False]


def test_equal_steps_run_as_often_as_they_are_listed(world: World) -> None:
    world.approved(A, A)
    assert world.runs(A, A, A) == [True, True, False]


def test_plan_returns_the_approved_steps(world: World) -> None:
    request = world.proposed(A, B, C)
    first, _, last = request.args["steps"]
    edited = {**last, "args": {"number": 30}}
    world.case.decide(request.edit({"steps": [first, edited]}), ANA)
    assert world.plan(A, B, C) == (
        ToolCall("pay", {"number": 1}),
        ToolCall("pay", {"number": 30}),
    )


def test_edited_plan_covers_what_was_approved(world: World) -> None:
    request = world.proposed(A, B, C)
    first, _, last = request.args["steps"]
    edited = {**last, "args": {"number": 30}}
    world.case.decide(request.edit({"steps": [first, edited]}), ANA)
    assert world.runs(A, B, C, ("pay", 30)) == [True, False, False, True]


@pytest.mark.parametrize("what", ["added", "order", "risk", "tool", "args", "none", "any_order"])
def test_edit_only_removes_steps_and_changes_arguments(world: World, what: str) -> None:
    request = world.proposed(A, B)
    first, second = request.args["steps"]
    edits: dict[str, dict[str, Any]] = {
        "added": {"steps": [first, second, first]},
        "order": {"steps": [second, first]},
        "risk": {"steps": [{**first, "risk": "critical"}, second]},
        "tool": {"steps": [{**first, "tool": "mail"}, second]},
        "args": {"steps": [{**first, "args": {"number": "many"}}, second]},
        "none": {"steps": []},
        "any_order": {"any_order": True},
    }
    with pytest.raises(InvalidDecision):
        world.case.decide(request.edit(edits[what]), ANA)
    assert world.inbox.grants_sync() == []


def test_rejected_plan_covers_nothing(world: World) -> None:
    request = world.proposed(A, B)
    world.case.decide(request.reject("too much"), ANA)
    with pytest.raises(Rejected, match="too much"):
        world.plan(A, B)
    assert world.inbox.grants_sync(live_only=False) == []
    assert world.runs(A, run="r2") == [False]


def test_plan_covers_only_what_its_person_could_approve(url: str) -> None:
    world = World(url, Policy())
    steps = [(name, 0) for name in TOOLS]
    world.approved(*steps, any_order=True)
    world.follow(*RULES)
    covered = [name for name, number in steps if name != "banned" and world.runs((name, number))[0]]
    assert covered == ["pay", "mail", "free", "finance"]
    with pytest.raises(Refused):
        world.runs(("banned", 0))
    world.store.close()


def test_plan_is_for_people_who_could_decide_its_steps(world: World) -> None:
    request = world.proposed(A, ("finance", 1), ("passkey", 1), ("legal", 1), ("critical", 1))
    row = world.store.call(request.id)
    assert row is not None
    assert (row.terms.reviewers, row.terms.assurance) == (("group:finance",), "passkey")
    assert (row.terms.requester_decides, row.terms.risk.level) == (False, "critical")


def test_denied_step_denies_the_plan(world: World) -> None:
    with pytest.raises(Denied, match="step 2, banned"):
        world.plan(A, ("banned", 1))
    assert world.runs(A) == [False]


def test_step_that_is_denied_later_does_not_run(url: str) -> None:
    world = World(url)
    world.approved(A, B)
    world.follow(Rule("pay", verdict="deny"), *RULES)
    with pytest.raises(Refused):
        world.runs(A)
    assert world.case.ran == []
    world.store.close()


def test_step_that_becomes_riskier_asks(world: World) -> None:
    world.approved(A, B)
    world.follow(Rule("pay", risk="critical"), *RULES)
    assert world.runs(A) == [False]


def test_undeclared_risk_counts_as_high(world: World) -> None:
    request = world.proposed(A, B)
    assert request.risk.level == "high"
    assert [step["risk"] for step in request.args["steps"]] == ["high", "high"]


def test_rejection_beats_the_plan(world: World) -> None:
    assert world.runs(A) == [False]
    pending = world.inbox.pending_sync(tool="pay").items[0]
    world.inbox.reject_sync(pending, "no", by="ana")
    world.approved(A, B)
    with pytest.raises(Refused):
        world.runs(A)
    assert world.case.ran == []


def test_rejection_of_a_step_ends_the_plan(world: World) -> None:
    world.approved(A, B, C)
    assert world.runs(B) == [False]
    pending = world.inbox.pending_sync(tool="mail").items[0]
    world.inbox.reject_sync(pending, "not yet", by="ben")
    assert world.runs(A) == [False]
    assert world.inbox.grants_sync() == []


def test_rejection_of_another_call_leaves_the_plan(world: World) -> None:
    world.approved(A, B)
    assert world.runs(("mail", 9)) == [False]
    pending = world.inbox.pending_sync(tool="mail").items[0]
    world.inbox.reject_sync(pending, "not this one", by="ben")
    assert world.runs(A, B) == [True, True]


def test_plan_is_for_one_run_and_ends_in_time(world: World) -> None:
    world.approved(A, B, C)
    assert world.runs(A, run="r2") == [False]
    assert world.runs(A) == [True]
    world.clock.advance(86_401)
    assert world.runs(B) == [False]


def test_plan_ends_with_its_run(world: World) -> None:
    world.approved(A, B)
    assert world.plan(A, B) == (ToolCall("pay", {"number": 1}), ToolCall("mail", {"number": 2}))
    assert world.store.run("r1").status == "done"  # type: ignore[union-attr]
    assert world.inbox.grants_sync() == []
    assert world.runs(B) == [False]


def test_revoked_plan_asks(world: World) -> None:
    world.approved(A, B)
    (grant,) = world.inbox.grants_sync()
    world.inbox.revoke_sync(grant, by="ben")
    assert world.runs(A) == [False]


@pytest.mark.parametrize("loses", ["group", "everything"])
def test_person_who_loses_rights_ends_the_plan(world: World, loses: str) -> None:
    world.approved(A, B)
    assert world.runs(A) == [True]
    if loses == "group":
        change_person(world.store, "ana", remove_groups=["finance"], by="root")
    else:
        remove_person(world.store, "ana", by="root")
    assert world.runs(B) == [False]


def test_step_is_left_again_only_if_nothing_happened(world: World) -> None:
    world.approved(A, B, C)
    world.errors = [NotExecuted("the bank is closed")]
    with pytest.raises(NotExecuted):
        world.runs(A)
    assert world.runs(B, A) == [False, True]
    world.errors = [ValueError("half done")]
    with pytest.raises(ValueError, match="half done"):
        world.case.enter(lambda: world.tools["mail"](number=2), "r1")
    assert world.runs(B, C) == [False, True]


def test_step_stays_taken_in_doubt(world: World) -> None:
    world.approved(A, A)
    world.errors = [TimeoutError()]
    with pytest.raises(Paused):
        world.case.enter(lambda: world.tools["pay"](number=1), "r1")
    (grant,) = world.inbox.grants_sync()
    assert [bool(call) for call in grant.steps] == [True, False]
    (doubt,) = world.inbox.pending_sync(kind="in_doubt").items
    world.inbox.reject_sync(doubt, "given up", by="ben")
    assert world.inbox.grants_sync() == []


def test_allowed_steps_hold_up_no_other(world: World) -> None:
    world.approved(("free", 1), A, ("free", 2), B)
    assert world.runs(A, ("free", 1), B) == [True, True, True]


def test_parallel_callers_take_each_step_once(world: World) -> None:
    world.approved(A, A, A, any_order=True)
    others = [World.__new__(World) for _ in range(4)]
    for other in others:
        other.store = open_store(world.store.url, clock=world.clock)
        other.case = Case(other.store, policy=Policy(RULES))
        other.case.ran = world.case.ran
        other.errors = []
        other.tools = {name: other._guarded(name) for name in TOOLS}

    def keyed(number: int) -> bool:
        other = others[number % 4]

        @other.case.gate.guard(name="pay", key=lambda args: f"k{number}")
        def pay(number: int = 0) -> str:
            world.case.ran.append(("pay", number))
            return "paid"

        def body() -> None:
            pay(number=1)
            raise Paused("r1", ())

        with contextlib.suppress(Paused):
            other.case.enter(body, "r1", requester="rita")
        return True

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(keyed, range(8)))
    assert world.case.ran == [A, A, A]
    for other in others:
        other.store.close()


def test_undone_approval_covers_nothing(world: World) -> None:
    request = world.proposed(A, B)
    world.case.decide(request.approve(), ANA, undo_seconds=10)
    assert world.runs(A) == [False]
    world.inbox.undo_sync(request, by=ANA.at(world.store))
    world.clock.advance(11)
    assert world.runs(("mail", 2)) == [False]
    assert world.inbox.grants_sync() == []


def test_plan_takes_no_grant(world: World) -> None:
    request = world.proposed(A, B)
    with pytest.raises(InvalidDecision, match="own steps"):
        world.inbox.approve_sync(request, by="ana", grant={"scope": "any"})


def test_changed_tool_asks(url: str) -> None:
    world = World(url)
    world.approved(A, B)

    @world.case.gate.guard(name="pay", version="2")
    def pay(number: int = 0) -> str:
        world.case.ran.append(("pay", number))
        return "paid"

    world.tools["pay"] = pay
    assert world.runs(A) == [False]
    world.store.close()


def test_bound_facts_are_part_of_a_step(url: str) -> None:
    world = World(url)
    tenants = ["north"]

    @world.case.gate.guard(name="pay", binds=lambda: {"tenant": tenants[0]})
    def pay(number: int = 0) -> str:
        world.case.ran.append(("pay", number))
        return "paid"

    world.tools["pay"] = pay
    request = world.approved(A, A)
    assert request.args["steps"][0]["facts"] == {"tenant": "north"}
    tenants[0] = "south"
    assert world.runs(A) == [False]
    tenants[0] = "north"
    assert world.runs(("pay", 2)) == [False]
    world.store.close()


@pytest.mark.parametrize(
    "calls",
    [
        [],
        "pay",
        {"tool": "pay"},
        [ToolCall("unknown", {})],
        [ToolCall("pay", {"number": "x"})],
        [ToolCall("pay", {"other": 1})],
        [("pay", 3)],
        [print],
        [ToolCall("pay", {"number": 1})] * 51,
    ],
)
def test_wrong_plan_is_refused(world: World, calls: Any) -> None:
    with pytest.raises(InvalidCall):
        world.case.enter(lambda: world.case.gate.plan_sync(calls))
    with pytest.raises(InvalidCall, match="named run"):
        world.case.gate.plan_sync([ToolCall("pay", {"number": 1})])


def test_plan_takes_functions_and_partials(world: World) -> None:
    pay = world.tools["pay"]
    calls = [(pay, {"number": 1}), functools.partial(pay, number=1), {"tool": "pay", "args": {}}]
    request = world.case.paused(lambda: world.case.gate.plan_sync(calls))
    steps: Any = request.args["steps"]
    assert [step["args"] for step in steps] == [{"number": 1}, {"number": 1}, {"number": 0}]


async def test_async_plan_pauses_and_resumes(world: World) -> None:
    @world.case.gate.guard(name="later")
    async def later(number: int) -> str:
        world.case.ran.append(("later", number))
        return "done"

    async def body() -> None:
        async with world.case.gate.run("r9"):
            steps = await world.case.gate.plan([ToolCall("later", {"number": n}) for n in (1, 2)])
            for step in steps:
                await later(**step.args)  # type: ignore[arg-type]

    with pytest.raises(Paused) as caught:
        await body()
    await world.inbox.approve(caught.value.requests[0], by="ana")
    await body()
    assert world.case.ran == [("later", 1), ("later", 2)]


def test_declared_secrets_of_steps_are_masked(world: World) -> None:
    word = Annotated[str, WithJsonSchema({"type": "string", "format": "password"})]

    @world.case.gate.guard(name="login")
    def login(user: str, word: word) -> str:  # type: ignore[valid-type]
        return "in"

    call = ToolCall("login", {"user": "ana", "word": "swordfish"})
    request = world.case.paused(lambda: world.case.gate.plan_sync([call]))
    row = world.store.call(request.id)
    assert row is not None
    tool = world.store.tool(row.tool_digest)
    assert tool is not None
    schema = json.loads(tool.schema)["parameters"]
    args = dict(request.args)
    shown = redact(args, schema, secrets_in((args, schema))).value
    assert "swordfish" not in str(shown)
    assert "ana" in str(shown)


# -- a tool of the user with the same name


def test_tool_named_plan_is_no_plan(url: str) -> None:
    """Its approval covers its own call only, whatever its arguments look like."""
    world = World(url)

    @world.case.gate.guard(name="plan")
    def plan(steps: list[dict[str, Any]], any_order: bool) -> str:
        world.case.ran.append(("plan", len(steps)))
        return "planned"

    (proposed,) = [world.proposed(A, run="other")]
    steps = [dict(step) for step in proposed.args["steps"]]
    request = world.case.paused(lambda: plan(steps, False), "r1", requester="rita")
    assert not request.plan
    assert proposed.plan
    edited = [*steps, {"tool": "anything"}]  # as any other tool, it takes any edit
    world.case.decide(request.edit({"steps": edited}), ANA)
    assert world.inbox.grants_sync() == []
    assert world.runs(A) == [False]
    assert world.case.enter(lambda: plan(steps, False), "r1", requester="rita") == "planned"
    world.store.close()


def test_remote_agent_cannot_propose_a_plan(url: str) -> None:
    world = World(url)
    proposed = world.proposed(A, run="other")
    app = create_app(store=world.store, policy=Policy(RULES), auth=False)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        body = {"tool": "plan", "args": dict(proposed.args), "run": "r1"}
        opened = client.post("/api/requests", json=body).json()
        assert not opened["plan"]
        decision = {"type": "approve", "seen_digest": opened["digest"]}
        decided = client.post(f"/api/requests/{opened['id']}/decision", json=decision)
        assert decided.status_code == 200
        assert client.get("/api/grants").json()["items"] == []


# -- the tool with which a model proposes a plan


@tool(needs_approval=True, title="Pay {to}")
def pay(to: str, amount: int = 3) -> str:
    """Pay somebody."""
    PAID.append((to, amount))
    return f"paid {to} {amount}"


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"saw {what}"


PAID: list[tuple[str, int]] = []
STEPS = [
    {"tool": "pay", "args": {"to": "al", "amount": 1}},
    {"tool": "look", "args": {"what": "the bill"}},
    {"tool": "pay", "args": {"to": "bo"}},
]


def agent(url: str, *steps: Any, **options: Any) -> Agent:
    PAID.clear()
    return Agent(
        "clerk",
        model=ScriptedModel(steps),
        tools=[pay, look, sayso.plan, sayso.ask_user],
        store=url,
        **options,
    )


async def test_model_proposes_a_plan(url: str) -> None:
    clerk = agent(
        url,
        call("plan", {"steps": STEPS}),
        call("pay", {"to": "al", "amount": 1}),
        call("look", {"what": "the bill"}),
        call("pay", {"to": "bo", "amount": 3}),
        call("pay", {"to": "cy", "amount": 3}),
        say("Done."),
    )
    result = await clerk.run("pay them", thread="t")
    (request,) = result.interruptions
    assert request.plan
    titles = [step.get("title") for step in request.args["steps"]]
    assert titles == ["Pay al", None, "Pay bo"]
    result = await clerk.resume("t", decisions=[request.approve()])
    (other,) = result.interruptions  # it was not in the plan
    assert (other.args["to"], PAID) == ("cy", [("al", 1), ("bo", 3)])
    result = await clerk.resume("t", decisions=[other.reject("no")])
    assert (result.output, len(PAID)) == ("Done.", 2)
    sources = [call.source for call in clerk.store.calls_of(other.run) if call.tool == "pay"]
    assert sources == ["plan", "plan", "person"]
    assert verify(clerk.store).ok
    clerk.store.close()


async def test_rejected_plan_is_told_to_the_model(url: str) -> None:
    clerk = agent(url, call("plan", {"steps": STEPS}), say("Then not."))
    result = await clerk.run("pay them", thread="t")
    result = await clerk.resume("t", decisions=[result.interruptions[0].reject("not today")])
    assert result.output == "Then not."
    (told,) = [m for m in clerk.model.requests[-1].messages if m["role"] == "tool"]  # type: ignore[attr-defined]
    assert "not today" in told["content"]
    assert PAID == []
    clerk.store.close()


@pytest.mark.parametrize(
    "steps",
    [
        *([], [{"tool": "gone", "args": {}}], [{"tool": "plan", "args": {"steps": []}}]),
        *([{"tool": "ask_user_question", "args": {}}], [{"tool": "pay", "args": {"whom": 3}}]),
    ],
    ids=str,
)
async def test_model_reads_what_is_wrong_with_its_plan(url: str, steps: list[Any]) -> None:
    clerk = agent(url, call("plan", {"steps": steps}), say("Sorry."))
    result = await clerk.run("pay them", thread="t")
    assert (result.status, result.output) == ("done", "Sorry.")
    (told,) = [m for m in clerk.model.requests[-1].messages if m["role"] == "tool"]  # type: ignore[attr-defined]
    assert "error" in told["content"]
    clerk.store.close()


async def test_policy_judges_the_plan_of_a_model(url: str) -> None:
    denies = Policy([Rule("plan", verdict="deny", description="no plans here")])
    clerk = agent(url, call("plan", {"steps": STEPS}), say("Then not."), policy=denies)
    result = await clerk.run("pay them", thread="t")
    assert result.output == "Then not."
    clerk.store.close()


def test_equal_plans_suggest_no_grant(url: str) -> None:
    world = World(url, Policy([Rule("*", risk="low")]))
    for number in range(11):
        request = world.proposed(("pay", 1), run=f"r{number}")
        world.case.decide(request.approve(), ANA)
    assert world.inbox.suggestions_sync(by=ANA.at(world.store)) == []
    world.store.close()
