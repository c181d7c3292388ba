"""The policy or the tool changed before the start: the approved call must still match."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, person

import sayso
from sayso import Cancelled, Denied, Policy, Rule
from sayso.testing.scripted_model import ScriptedModel, call, say

USUAL = Rule("pay", name="usual")
NEVER = Rule("pay", name="never", verdict="deny")
TWO = Rule("pay", name="two", quorum=2)
OTHER = Rule("burn", verdict="deny")


def later(case: Case, *rules: Rule) -> Case:
    """The same store in a process with another policy; what ran is counted in one place."""
    other = Case(case.store, policy=Policy(rules))
    other.ran = case.ran
    return other


@pytest.fixture
def approved(case: Case) -> Case:
    case = later(case, USUAL)
    case.approved(lambda: case.paying()("bo"))
    return case


def test_newly_denied_call_does_not_run(approved: Case) -> None:
    now = later(approved, NEVER, USUAL)
    with pytest.raises(Denied, match=r"policy \(never\) denies it now"):
        now.enter(lambda: now.paying()("bo"))
    with pytest.raises(Cancelled):
        approved.enter(lambda: approved.paying()("bo"))
    assert approved.ran == []


def test_raised_quorum_asks_again(approved: Case) -> None:
    now = later(approved, TWO)
    again = now.paused(lambda: now.paying()("bo"))
    assert (again.quorum, again.revision) == (2, 2)
    now.decide(again.approve(), person("ana"))
    assert now.paused(lambda: now.paying()("bo")).votes[0].by == "ana"
    now.decide(again.approve(), person("bea"))
    assert now.enter(lambda: now.paying()("bo")) == "paid bo 3"


@pytest.mark.parametrize(
    "rules", [(OTHER, USUAL), (), (Rule("pay", name="free", verdict="allow"),)]
)
def test_equal_or_looser_policy_keeps_the_approval(approved: Case, rules: tuple[Rule, ...]) -> None:
    now = later(approved, *rules)
    assert now.enter(lambda: now.paying()("bo")) == "paid bo 3"


def test_changed_policy_file_applies_at_once(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[[rule]]\ntool = "pay"\nverdict = "ask"\n')
    case = Case(case.store, policy=file)
    case.approved(lambda: case.paying()("bo"))
    file.write_text('[[rule]]\ntool = "pay"\nverdict = "deny"\n')
    with pytest.raises(Denied, match="denies it now"):
        case.enter(lambda: case.paying()("bo"))
    assert case.ran == []


async def test_agent_sees_newly_denied_call_as_rejected(case: Case) -> None:
    ran: list[str] = []

    @sayso.tool(needs_approval=True)
    def pay(to: str) -> str:
        """Pay somebody."""
        ran.append(to)
        return "paid"

    def agent(*rules: Rule) -> sayso.Agent:
        model = ScriptedModel([say("Then not.")] if rules else [call("pay", {"to": "bo"})])
        return sayso.Agent(
            "payer", model=model, tools=[pay], store=case.store, policy=Policy(rules)
        )

    paused = await agent().run("pay bo", thread="t")
    now = agent(NEVER)
    result = await now.resume("t", decisions=[paused.interruptions[0].approve()])
    assert (result.output, ran) == ("Then not.", [])
    request = await case.inbox.get(paused.interruptions[0].id)
    assert request.status == "cancelled"


def test_new_default_argument_asks_again(case: Case) -> None:
    case.approved(lambda: case.paying()("bo"))
    next_release = Case(case.store)

    @next_release.gate.guard(needs_approval=True)
    def pay(to: str, amount: int = 3, currency: str = "EUR") -> str:
        case.ran.append((to, amount, currency))
        return "paid"

    again = case.paused(lambda: pay("bo"))
    assert (again.args, again.revision) == ({"to": "bo", "amount": 3, "currency": "EUR"}, 2)
    case.decide(again.approve())
    assert case.enter(lambda: pay("bo")) == "paid"
    assert case.ran == [("bo", 3, "EUR")]


async def test_denied_rerun_mentions_the_earlier_start(case: Case) -> None:
    ran: list[str] = []

    @sayso.tool
    def pay(to: str) -> str:
        """Pay somebody."""
        ran.append(to)
        raise KeyboardInterrupt

    def agent(*rules: Rule) -> sayso.Agent:
        model = ScriptedModel([say("Then not.")] if rules else [call("pay", {"to": "bo"})])
        return sayso.Agent(
            "payer", model=model, tools=[pay], store=case.store, policy=Policy(rules)
        )

    with pytest.raises(KeyboardInterrupt):
        await agent().run("pay bo", thread="t")
    (doubt,) = (await case.inbox.pending()).items
    assert doubt.kind == "in_doubt"
    now = agent(NEVER)
    await now.resume("t", decisions=[doubt.approve()])
    said = now.model.requests[-1].messages[-1]["content"]
    assert "It was cancelled before it ran again. The reason given: the policy (never)" in said
    assert said.count(". It had been started before, and may have had effects.") == 1, said
    assert ran == ["bo"]


def test_denied_rerun_error_mentions_the_earlier_start(case: Case) -> None:
    case = later(case, USUAL)

    @case.gate.guard
    def pay(to: str) -> str:
        case.ran.append(to)
        raise KeyboardInterrupt

    case.approved(lambda: pay("bo"))
    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: pay("bo"))
    case.decide(case.pending().approve())
    now = later(case, NEVER)
    for _ in range(2):
        with pytest.raises((Denied, Cancelled), match="started before, and may have had effects"):
            now.enter(lambda: now.gate.guard(pay.__wrapped__)("bo"))
    assert case.ran == ["bo"]
