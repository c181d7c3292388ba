"""The helpers that the package offers for tests of users."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import sayso.testing
from sayso import (
    Agent,
    Approve,
    Gate,
    Inbox,
    Paused,
    Reject,
    Rejected,
    Request,
    Respond,
    Reviewer,
    ToolCall,
    ask_user,
    codec,
)
from sayso.errors import NotAllowed
from sayso.stores import open_store
from sayso.testing import FakeClock, ScriptedModel, ScriptedReviewer, StoreSuite, call, say
from sayso_testing.suite.running import MOVED_BY

# -- the package


def test_names_are_imported_on_first_use() -> None:
    code = "import sys, sayso.testing; print(sorted(set(sys.modules) & {'pytest', 'pydantic'}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_only_the_suite_needs_pytest() -> None:
    code = """
import sys
from sayso.testing import FakeClock, ScriptedReviewer, check_store
print("pytest" in sys.modules)
from sayso.testing import StoreSuite
print("pytest" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


def test_every_export_resolves() -> None:
    for name in sayso.testing.__all__:
        assert getattr(sayso.testing, name) is not None
    assert set(dir(sayso.testing)) >= set(sayso.testing.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        sayso.testing.no_such_name  # noqa: B018


def test_suite_tests_have_unique_names() -> None:
    seen: dict[str, str] = {}
    for part in StoreSuite.__mro__:
        for name in vars(part):
            if name.startswith("test_"):
                assert name not in seen, f"{name} is in {seen[name]} and in {part.__name__}"
                seen[name] = part.__name__
    assert len(seen) > 150


def test_store_suite_needs_make_store() -> None:
    with pytest.raises(NotImplementedError):
        StoreSuite().make_store(FakeClock(), None)  # type: ignore[arg-type]


def test_suite_knows_every_command() -> None:
    from sayso.engine import commands

    decisions = {"approve", "edit", "reject", "respond"}
    systems = {
        *(
            "grant",
            "revoke_grant",
            "open_window",
            "give_grant",
            "lift_refusal",
            "note",
            "token",
            "revoke_token",
            "use_token",
        ),
        *("add_person", "change_person", "remove_person"),
    }
    named = {command.name for command in commands.COMMANDS} - systems - {"decide"}
    assert named <= set(MOVED_BY)
    assert decisions <= set(MOVED_BY)


# -- the clock


def test_fake_clock_moves_only_on_demand() -> None:
    clock = FakeClock()
    began = clock()
    assert clock() == began
    assert clock.advance(1.5) == began + 1_500_000 == clock()
    assert clock.set(began) == began == clock()


def test_clock_can_be_set_to_a_moment() -> None:
    moment = datetime(2030, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    clock = FakeClock(moment)
    assert clock() == round(moment.timestamp()) * 1_000_000
    clock.set(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert clock() == 1_000_000
    assert FakeClock(5)() == 5


def test_fake_clock_refuses_invalid_moves() -> None:
    with pytest.raises(ValueError, match="set"):
        FakeClock().advance(-1)
    with pytest.raises(ValueError, match="time zone"):
        FakeClock(datetime(2030, 1, 1))


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_store_uses_the_fake_clock(url: str, tmp_path: Any) -> None:
    clock = FakeClock()
    store = open_store(url if "://" in url else f"sqlite:///{tmp_path}/s.db", clock=clock)
    assert store.now() == clock()
    clock.advance(1)
    assert store.now() == clock()
    store.close()


# -- the reviewer


class Desk:
    """A gate whose calls a scripted reviewer hears of."""

    def __init__(self, decisions: Any, **options: Any) -> None:
        self.gate = Gate("memory://", wait=options.pop("wait", 5))
        self.reviewer = ScriptedReviewer(self.gate.store, decisions, **options)
        self.gate.channels = (self.reviewer,)
        self.ran: list[str] = []
        self.send = self.gate.guard(self._send, name="send")
        self.pay = self.gate.guard(self._pay, name="pay")

    def _send(self, to: str) -> str:
        self.ran.append(f"send {to}")
        return f"sent to {to}"

    def _pay(self, amount: int) -> str:
        self.ran.append(f"pay {amount}")
        return "paid"


# Each way to write an answer as a function, beside the decisions themselves.
def yes(request: Request) -> Approve:
    return request.approve()


async def later(request: Request) -> Approve:
    return request.approve()


@pytest.mark.parametrize("answer", [yes, later, Request.approve, Approve()])
def test_reviewer_approves_a_call(answer: Any) -> None:
    desk = Desk([answer])
    assert desk.send("bo") == "sent to bo"
    assert [request.args for request in desk.reviewer.seen] == [{"to": "bo"}]
    assert [request.status for request in desk.reviewer.decided] == ["approved"]
    assert desk.reviewer.errors == []


def test_reviewer_follows_the_script() -> None:
    script = [Request.approve, Reject("not him"), lambda request: request.edit({"to": "di"})]
    desk = Desk(script, by="ana")
    assert desk.send("bo") == "sent to bo"
    with pytest.raises(Rejected, match="ana rejected it: not him"):
        desk.send("cy")
    assert desk.send("cy") == "sent to di"
    assert desk.ran == ["send bo", "send di"]


def test_reviewer_decides_by_tool() -> None:
    desk = Desk({"send": Request.approve, "*": Reject("never")})
    assert desk.send("bo") == "sent to bo"
    with pytest.raises(Rejected, match="never"):
        desk.pay(5)


def test_reviewer_answers_questions() -> None:
    gate = Gate("memory://", wait=5)
    reviewer = ScriptedReviewer(gate.store, {"question": Respond("blue")})
    gate.channels = (reviewer,)
    assert gate.ask_sync("Which colour?") == "blue"


def test_script_accepts_calls_in_many_forms() -> None:
    ran: list[str] = []

    def note(text: str) -> str:
        ran.append(text)
        return text

    made = [ToolCall("note", {"text": "a"}), call("note", {"text": "b"})]
    last = ToolCall("note", {"text": "c"}, "mine")
    model = ScriptedModel([made, last, "Noted."])
    assert Agent("clerk", model=model, tools=[note]).run_sync("Go").output == "Noted."
    assert sorted(ran) == ["a", "b", "c"]
    assert "mine" in codec.dumps(model.requests[-1].messages)
    with pytest.raises(TypeError, match="is not a step of a script"):
        Agent("clerk", model=ScriptedModel([5])).run_sync("Go")  # type: ignore[list-item]


def test_reviewer_answers_the_questions_of_a_model() -> None:
    wanted = {"question": "Which colour?", "options": None, "free_text": True}
    store = open_store("memory://")
    reviewer = ScriptedReviewer(store, {"question": Respond("blue"), "*": Reject("never")})
    agent = Agent(
        "painter",
        model=ScriptedModel([call("ask_user_question", wanted), say("Blue.")]),
        tools=[ask_user],
        store=store,
        channels=[reviewer],
    )
    assert agent.run_sync("Paint it").output == "Blue."
    assert [request.status for request in reviewer.decided] == ["responded"]


async def test_reviewer_answers_on_a_loop() -> None:
    gate = Gate("memory://", wait=5)
    gate.channels = (ScriptedReviewer(gate.store, [Respond("blue")]),)
    assert await gate.ask("Which colour?") == "blue"


@pytest.mark.parametrize("decisions", [[], [None], {"other": Request.approve}])
def test_reviewer_may_leave_requests_pending(decisions: Any) -> None:
    desk = Desk(decisions, wait=0)
    with pytest.raises(Paused):
        desk.send("bo")
    assert len(desk.reviewer.seen) == 1
    assert desk.reviewer.decided == []
    assert len(Inbox(desk.gate.store).pending_sync().items) == 1


def test_reviewer_keeps_refused_answers() -> None:
    desk = Desk([Request.approve], by=Reviewer("robot", role="agent"), wait=0)
    with pytest.raises(Paused):
        desk.send("bo")
    assert [type(error) for error in desk.reviewer.errors] == [NotAllowed]
    assert desk.ran == []
