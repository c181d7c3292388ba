"""The test suite that every adapter must pass, including your own.

Write an ``AdapterHarness``, and subclass the suite in a test file::

    class TestMyFramework(AdapterSuite):
        harness = MyHarness

Every step runs in its own process, or acts as if it did; files count effects and model calls. If a
framework cannot do something, name the test in ``cannot``, with the reason.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sayso.errors import AlreadyDecided, Tampered
from sayso_testing.adapter_escapes import EscapeTests
from sayso_testing.adapter_harness import LAST, AdapterHarness
from sayso_testing.adapter_steps import LATER, STORE, ForkServer, Scenario

ANA = {"to": "ana", "amount": 5, "note": "none"}


class DecisionTests:
    """Every decision, and what the run does with it."""

    def test_approve(self, scenario: Scenario) -> None:
        result = scenario.run()
        request = scenario.the_request()
        assert (result.status, result.waiting) == ("paused", (request.id,))
        # A person sees the full call: defaults are filled in, and agent and requester are named.
        assert (request.kind, request.tool, dict(request.args)) == ("approval", "pay", ANA)
        assert (request.agent, request.requester) == ("teller", "rita")
        assert (scenario.effects(), scenario.asked) == ([], 1)
        scenario.decide(request, request.approve())
        result = scenario.resume()
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)
        assert scenario.heard() == "paid 5 to ana"
        assert scenario.failed() is not True

    def test_edit(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.edit({"to": "bob"}))
        assert scenario.resume().status == "done"
        assert scenario.effects() == [{**ANA, "to": "bob"}]
        # The model learns what ran, and that it differs from what it asked for.
        assert "paid 5 to bob" in scenario.heard()
        assert scenario.heard() != "paid 5 to bob"

    def test_reject_with_reason(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.reject("ana left the company"))
        result = scenario.resume()
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([], 2)
        assert "ana left the company" in scenario.heard()
        assert scenario.failed() is not False

    def test_repeated_call_stays_rejected(self, scenario: Scenario) -> None:
        scenario.run("repeat")
        request = scenario.the_request()
        scenario.decide(request, request.reject("ana left the company"))
        result = scenario.resume()
        # The model made the same call eight more times, and no person was asked.
        assert (result.status, scenario.pending(), scenario.effects()) == ("done", [], [])
        assert all("ana left" in scenario.heard(f"call_{n}") for n in range(1, 10))
        # New text of the user is a reason to ask again, and the rejection is shown.
        scenario.run("repeat")
        shown = scenario.the_request()
        assert [r.message for r in shown.refusals] == ["ana left the company"]
        scenario.decide(shown, shown.approve(), by="bob")
        scenario.resume()
        assert scenario.effects() == [ANA]

    def test_respond(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.respond("paid in cash already"))
        assert scenario.resume().status == "done"
        assert scenario.effects() == []
        assert "paid in cash already" in scenario.heard()

    def test_question(self, scenario: Scenario) -> None:
        result = scenario.run("order")
        request = scenario.the_request()
        assert (result.status, request.kind) == ("paused", "question")
        assert request.question is not None
        assert request.question.text == "Which size?"
        assert scenario.resume().status == "paused"  # nobody has answered
        scenario.decide(request, request.respond("large"))
        assert scenario.resume().status == "done"
        assert scenario.effects() == [{"dish": "pizza", "size": "large"}]
        assert scenario.heard() == "ordered a large pizza"
        assert scenario.asked == 2

    def test_conditional_policy(self, scenario: Scenario) -> None:
        result = scenario.run("twice", policy="large")
        request = scenario.the_request()
        assert (result.status, dict(request.args)) == ("paused", {**ANA, "amount": 500})
        assert scenario.effects() == [ANA]  # the small one needed no approval
        scenario.decide(request, request.approve())
        assert scenario.resume().status == "done"
        assert [made["amount"] for made in scenario.effects()] == [5, 500]

    def test_denied_without_asking(self, scenario: Scenario) -> None:
        result = scenario.run("wipe")
        assert (result.status, result.waiting) == ("done", ())
        assert (scenario.effects(), scenario.pending()) == ([], [])
        assert "disks are not ours" in scenario.heard()
        assert scenario.failed() is not False

    def test_decided_twice(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.approve())
        again = scenario.decide(request, request.approve())
        assert again.status == "approved"
        with pytest.raises(AlreadyDecided, match="ana"):
            scenario.decide(request, request.reject("no"), by="bob")
        assert scenario.resume().status == "done"
        assert scenario.effects() == [ANA]


BOB = {"to": "bob", "amount": 7, "note": "none"}


class ParallelTests:
    """Calls wait only for their own decision, and nothing runs twice."""

    def test_mixed_reply_is_decided_at_different_times(self, scenario: Scenario) -> None:
        result = scenario.run("three")
        ana, bob = scenario.pending()
        assert (result.status, set(result.waiting)) == ("paused", {ana.id, bob.id})
        assert scenario.effects() == [{"what": "sky"}]  # it did not wait for the others
        scenario.decide(bob, bob.approve())
        result = scenario.resume()
        assert (result.status, result.waiting) == ("paused", (ana.id,))
        assert scenario.effects("pay") == [BOB]
        assert scenario.resume().status == "paused"  # nothing was decided, so nothing happens
        scenario.decide(ana, ana.approve())
        result = scenario.resume()
        assert (result.status, result.output) == ("done", LAST)
        assert scenario.effects("pay") == [BOB, ANA]
        assert scenario.effects("look") == [{"what": "sky"}]
        # The model is called once for the turn, when all its calls have results.
        assert scenario.asked == 2
        told = [scenario.heard(f"call_{n}") for n in (1, 2, 3)]
        assert told == ["paid 5 to ana", "saw the sky", "paid 7 to bob"]

    def test_one_reply_mixes_rejection_and_approval(self, scenario: Scenario) -> None:
        scenario.run("three")
        ana, bob = scenario.pending()
        scenario.decide(ana, ana.reject("not her"))
        scenario.decide(bob, bob.approve())
        assert scenario.resume().status == "done"
        assert scenario.effects("pay") == [BOB]
        assert "not her" in scenario.heard("call_1")
        assert scenario.heard("call_3") == "paid 7 to bob"
        assert scenario.failed("call_1") is not False
        assert scenario.failed("call_3") is not True

    def test_equal_calls_in_one_reply_both_run(self, scenario: Scenario) -> None:
        scenario.run("double")
        assert len(scenario.pending()) == 2
        scenario.approve_all()
        assert scenario.resume().status == "done"
        assert scenario.effects() == [ANA, ANA]
        assert scenario.heard("call_1") == scenario.heard("call_2") == "paid 5 to ana"

    def test_early_resume_stays_paused(self, scenario: Scenario) -> None:
        scenario.run()
        result = scenario.resume()
        assert (result.status, result.waiting) == ("paused", (scenario.the_request().id,))
        assert (scenario.effects(), scenario.asked) == ([], 1)

    def test_resumed_twice_in_turn(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        assert scenario.resume().status == "done"
        again = scenario.resume()
        assert (again.status, again.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)

    def test_two_resumes_at_once_run_the_call_once(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        result = scenario.resume_both(tools="slow")
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)

    def test_resumed_at_once_by_three_processes(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        ended = scenario.at_once(3, tools="slow")
        assert [(result.status, result.output) for result in ended] == [("done", LAST)] * 3
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)


class ConversationTests:
    """A call belongs to one reply of one turn, and later turns know the earlier ones."""

    def test_repeated_id_is_another_call(self, scenario: Scenario) -> None:
        scenario.run("same id")
        scenario.approve_all()
        assert scenario.resume().status == "paused"
        assert scenario.effects() == [ANA]
        scenario.approve_all()
        result = scenario.resume()
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA, ANA], 3)

    def test_repeated_id_uses_the_new_arguments(self, scenario: Scenario) -> None:
        scenario.run("same id, other call")
        first = scenario.the_request()
        scenario.decide(first, first.reject("not her"))
        assert scenario.resume().status == "paused"
        second = scenario.the_request()
        assert dict(second.args) == BOB
        scenario.decide(second, second.approve())
        assert scenario.resume().status == "done"
        assert scenario.effects() == [BOB]

    def test_equal_ids_run_two_calls(self, scenario: Scenario) -> None:
        self.approve_both(scenario, "one id")

    def test_empty_ids_run_two_calls(self, scenario: Scenario) -> None:
        self.approve_both(scenario, "no ids")

    def approve_both(self, scenario: Scenario, script: str) -> None:
        result = scenario.run(script)
        ana, bob = scenario.pending()
        assert (dict(ana.args), dict(bob.args)) == (ANA, BOB)
        assert (result.status, set(result.waiting)) == ("paused", {ana.id, bob.id})
        scenario.approve_all()
        assert scenario.resume().status == "done"
        assert sorted(scenario.effects(), key=lambda args: str(args["to"])) == [ANA, BOB]

    def test_repeated_id_of_allowed_call_runs_again(self, scenario: Scenario) -> None:
        assert scenario.run("same id, free").status == "done"
        assert scenario.effects() == [{"what": "sky"}] * 2

    def test_repeated_id_in_later_turn_is_asked_again(self, scenario: Scenario) -> None:
        for turn in range(2):
            assert scenario.run("same id, later").status == "paused"
            assert scenario.effects() == [ANA] * turn
            scenario.approve_all()
            result = scenario.resume()
            assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA, ANA], 4)

    def test_later_turn_knows_earlier_ones(self, scenario: Scenario) -> None:
        scenario.run("same id, later")
        scenario.approve_all()
        scenario.resume()
        scenario.run("same id, later")
        assert scenario.last_prompt() == (2, 1)
        scenario.approve_all()
        scenario.resume()
        assert scenario.last_prompt() == (3, 2)

    def test_third_turn_repeats_no_earlier_turn(self, scenario: Scenario) -> None:
        prompts = []
        for _ in range(3):
            assert scenario.run("looks").status == "done"
            prompts.append(scenario.last_prompt())
        assert prompts == [(1, 1), (3, 2), (5, 3)]

    def test_threads_are_independent(self, scenario: Scenario) -> None:
        threads = ("thread-2", "thread-3")
        for thread in threads:
            assert scenario.run(thread=thread).status == "paused"
        for thread in threads:
            (request,) = scenario.pending(thread)
            scenario.decide(request, request.approve())
            assert scenario.resume(thread=thread).status == "done"
            assert scenario.last_prompt() == (1, 1)
        assert scenario.effects() == [ANA, ANA]

    def test_new_input_supersedes_requests(self, scenario: Scenario) -> None:
        scenario.run("same id, later")
        first = scenario.the_request()
        scenario.run("same id, later")
        assert scenario.inbox.get_sync(first.id).status == "superseded"
        with pytest.raises(AlreadyDecided):
            scenario.decide(first, first.approve())
        assert scenario.effects() == []

    def test_superseded_call_has_a_result(self, scenario: Scenario) -> None:
        scenario.run("same id, later")
        result = scenario.run("same id, later")
        assert (result.status, result.output) == ("done", LAST)
        assert scenario.last_prompt() == (1, 1)  # as providers require
        assert scenario.effects() == []

    def test_superseded_turn_keeps_results(self, scenario: Scenario) -> None:
        scenario.run("three")
        ana, _ = scenario.pending()
        scenario.decide(ana, ana.approve())
        scenario.resume()
        assert scenario.run("three").status == "done"
        assert scenario.heard("call_1") == "paid 5 to ana"  # or the model would pay again
        assert scenario.heard("call_2") == "saw the sky"
        assert "paid" not in scenario.heard("call_3")


class CoverageTests:
    """The agent lists what the gate is in front of."""

    def test_coverage_names_each_tool(self, scenario: Scenario) -> None:
        assert {"pay", "look", "wipe", "order"} <= set(scenario.covered())


class KillTests:
    """A killed process loses nothing and runs nothing twice; calls in doubt go to people."""

    def test_killed_while_waiting(self, scenario: Scenario) -> None:
        scenario.killed_while_waiting()
        request = scenario.the_request()
        scenario.decide(request, request.approve())
        result = scenario.elsewhere()
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)

    def test_killed_while_waiting_with_several_open(self, scenario: Scenario) -> None:
        scenario.killed_while_waiting("three")
        ana, bob = scenario.pending()
        scenario.decide(ana, ana.approve())
        assert scenario.elsewhere().waiting == (bob.id,)
        scenario.decide(bob, bob.reject("no"))
        assert scenario.elsewhere().status == "done"
        assert scenario.effects("pay") == [ANA]
        assert scenario.effects("look") == [{"what": "sky"}]
        assert scenario.asked == 2

    def test_killed_between_decision_and_start(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        scenario.killed("resume", "start before")
        assert scenario.effects() == []
        result = scenario.elsewhere(later=LATER)
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)

    def test_killed_after_the_result_was_stored(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        scenario.killed("resume", "record after")
        assert scenario.effects() == [ANA]
        result = scenario.elsewhere(later=LATER)
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)
        assert scenario.heard() == "paid 5 to ana"

    def test_killed_before_the_first_commit(self, scenario: Scenario) -> None:
        scenario.killed("run", "propose before")
        assert list(scenario.pending()) == []
        assert scenario.run().status == "paused"  # the caller sends the input again
        scenario.approve_all()
        assert scenario.elsewhere().output == LAST
        assert scenario.effects() == [ANA]
        assert scenario.asked in (2, 3)  # our own agent stores nothing before the first reply

    @pytest.mark.parametrize("point", ["finish before", "finish after"])
    def test_killed_at_the_end_of_the_run(self, scenario: Scenario, point: str) -> None:
        scenario.run()
        scenario.approve_all()
        scenario.killed("resume", point)
        result = scenario.elsewhere(later=LATER)
        assert (result.status, result.output) == ("done", LAST)
        assert scenario.effects() == [ANA]
        assert scenario.asked in (2, 3)  # the last reply may be asked for again

    @pytest.mark.parametrize(
        ("point", "before"),
        [("start after", 0), ("effect after", 1), ("record before", 1)],
        ids=["just started", "in the middle", "before the record"],
    )
    def test_killed_during_the_run(self, scenario: Scenario, point: str, before: int) -> None:
        scenario.run()
        scenario.approve_all()
        scenario.killed("resume", point)
        assert len(scenario.effects()) == before
        result = scenario.elsewhere(later=LATER)
        doubt = scenario.the_request()
        assert (result.status, result.waiting) == ("paused", (doubt.id,))
        assert (doubt.kind, doubt.tool, dict(doubt.args)) == ("in_doubt", "pay", ANA)
        assert len(scenario.effects()) == before  # it is not repeated without a decision
        scenario.decide(doubt, doubt.respond("paid, says the bank"))
        result = scenario.elsewhere(later=LATER)
        assert (result.status, result.output) == ("done", LAST)
        assert len(scenario.effects()) == before
        assert "paid, says the bank" in scenario.heard()
        assert scenario.asked == 2

    @pytest.mark.parametrize("again", [True, False], ids=["run it again", "give it up"])
    def test_in_doubt_is_for_people_to_settle(self, scenario: Scenario, again: bool) -> None:
        scenario.run()
        scenario.approve_all()
        scenario.killed("resume", "effect after")
        scenario.elsewhere(later=LATER)
        doubt = scenario.the_request()
        decision: Any = doubt.approve() if again else doubt.reject("lost in the post")
        scenario.decide(doubt, decision)
        assert scenario.elsewhere(later=LATER).status == "done"
        assert scenario.effects() == [ANA] * (2 if again else 1)
        assert ("paid 5 to ana" if again else "lost in the post") in scenario.heard()


class UnknownOutcomeTests:
    """A tool that raised may have had its effect: then it is in doubt, and is not retried."""

    def test_time_out_leaves_approved_call_in_doubt(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        for _ in range(2):  # a resume finds the doubt, and starts nothing
            result = scenario.resume(tools="times out")
            doubt = scenario.the_request()
            assert (result.status, result.waiting) == ("paused", (doubt.id,))
            assert (doubt.kind, dict(doubt.args)) == ("in_doubt", ANA)
            assert doubt.execution.result == "TimeoutError: no reply"
            assert (scenario.effects(), scenario.asked) == ([ANA], 1)
        scenario.decide(doubt, doubt.respond("paid, says the bank"))
        result = scenario.resume(tools="times out")
        assert (result.status, result.output) == ("done", LAST)
        assert (scenario.effects(), scenario.asked) == ([ANA], 2)
        assert "paid, says the bank" in scenario.heard()

    def test_call_in_doubt_does_not_block_others(self, scenario: Scenario) -> None:
        scenario.run("three")
        ana, bob = scenario.pending()
        scenario.decide(ana, ana.approve())
        assert scenario.resume(tools="times out").status == "paused"
        scenario.decide(bob, bob.reject("not him"))
        assert scenario.resume().status == "paused"
        doubt = scenario.the_request()
        assert (doubt.id, doubt.kind) == (ana.id, "in_doubt")
        scenario.decide(doubt, doubt.approve())
        assert scenario.resume().status == "done"
        assert scenario.effects("pay") == [ANA, ANA]  # a person said so

    def test_uncertain_exception_keeps_the_effect_key(self, scenario: Scenario) -> None:
        scenario.run("twice", policy="keyed")
        scenario.approve_all()
        assert scenario.resume(tools="breaks").status == "paused"
        doubt = scenario.the_request()
        assert (doubt.kind, doubt.effect_key) == ("in_doubt", "pay:ana")
        scenario.decide(doubt, doubt.reject("nobody knows"))
        assert scenario.resume().status == "paused"
        second = scenario.the_request()  # the model calls again, with other arguments
        scenario.decide(second, second.approve())
        assert scenario.resume().status == "done"
        assert scenario.effects() == [ANA]
        assert doubt.id in str(scenario.inbox.get_sync(second.id).execution.result)

    def test_not_executed_frees_the_effect_key(self, scenario: Scenario) -> None:
        scenario.run("twice", policy="keyed")
        scenario.approve_all()
        assert scenario.resume(tools="declines").status in ("paused", "raised")
        assert scenario.inbox.store.effects() == []
        assert [request for request in scenario.pending() if request.kind == "in_doubt"] == []
        assert scenario.effects() == []


class ToolErrorTests:
    """An error of a tool is recorded as one, whatever the framework makes of it."""

    def test_error_is_recorded_as_failure(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.approve())
        result = scenario.resume(tools="breaks")
        assert result.status in ("done", "raised")
        execution = scenario.inbox.get_sync(request.id).execution
        assert (execution.status, execution.attempts) == ("failed", 1)
        assert "half a reply" in str(execution.result)
        if result.status == "done":  # the framework made it a result for the model
            assert scenario.heard()
            assert scenario.failed() is not False
        scenario.resume(tools="breaks")
        assert scenario.effects() == [ANA]


class TamperingTests:
    """Either the approved call runs, or none does."""

    def test_state_tampered_with_before_the_decision(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.tamper("ana", "eve")
        request = scenario.the_request()
        assert request.args["to"] == "ana"
        with suppress(Tampered):  # if the state is part of the run's row, deciding is refused
            scenario.decide(request, request.approve())
        self._check_only_approved_runs(scenario)

    def test_state_tampered_with_after_the_decision(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        scenario.tamper("ana", "eve")
        self._check_only_approved_runs(scenario)

    def test_state_tampered_with_after_a_rejection(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.reject("never"))
        scenario.tamper("ana", "eve")
        assert scenario.resume().status in ("done", "raised")
        assert scenario.effects() == []

    def _check_only_approved_runs(self, scenario: Scenario) -> None:
        result = scenario.resume()
        assert result.status in ("done", "raised")
        assert scenario.effects() == ([ANA] if result.status == "done" else [])
        scenario.resume()
        assert scenario.effects() in ([], [ANA])

    def test_row_tampered_with(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        scenario.inbox.store.close()
        file = sqlite3.connect(scenario.folder / STORE)
        with file:
            file.execute("UPDATE call SET args = replace(args, '\"ana\"', '\"eve\"')")
        file.close()
        result = scenario.resume()
        assert (result.status, scenario.effects()) == ("raised", [])
        assert "Tampered" in result.error

    def test_removed_tool_cancels_the_call(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.approve())
        assert scenario.resume(tools="gone").status == "done"
        assert scenario.effects() == []
        assert scenario.heard()
        # People see that their decision was not used, and why.
        closed = scenario.inbox.get_sync(request.id)
        assert (closed.status, bool(closed.execution.result)) == ("cancelled", True)

    def test_tool_changed(self, scenario: Scenario) -> None:
        scenario.run()
        request = scenario.the_request()
        scenario.decide(request, request.approve())
        result = scenario.resume(tools="changed")
        again = scenario.the_request()
        assert (result.status, result.waiting) == ("paused", (again.id,))
        assert again.revision > request.revision
        assert (scenario.effects(), scenario.asked) == ([], 1)
        scenario.decide(again, again.approve())
        assert scenario.resume(tools="changed").status == "done"
        assert scenario.effects() == [ANA]

    def test_approval_ends_when_tool_arguments_change(self, scenario: Scenario) -> None:
        scenario.run()
        scenario.approve_all()
        assert scenario.resume(tools="other").status == "done"
        assert scenario.effects() == []
        assert scenario.heard()


_APPROVE = {"type": "approve"}


def _edit_first(action: Any) -> dict[str, Any]:
    return {"decisions": [{"type": "edit", "edited_action": action}, _APPROVE]}


def _decide_second(decision: Any) -> dict[str, Any]:
    return {"decisions": [_APPROVE, decision]}


_ARGS = {"to": "eve", "amount": 1}

#: Two calls are pending: ``pay`` ana, and ``pay`` bob, which allows only approve and reject.
MALFORMED: dict[str, Any] = {
    "too few decisions": {"decisions": [_APPROVE]},
    "too many decisions": {"decisions": [_APPROVE] * 3},
    "no decisions": {"decisions": []},
    "an empty object": {},
    "nothing": None,
    "no key decisions": {"answers": [_APPROVE, _APPROVE]},
    "a text": "approve",
    "a list of texts": ["approve", "approve"],
    "a number": 42,
    "decisions is nothing": {"decisions": None},
    "decisions is a text": {"decisions": "approve"},
    "decisions is an object": {"decisions": _APPROVE},
    "a decision is a text": {"decisions": ["approve", "approve"]},
    "a decision without a type": _decide_second({}),
    "an unknown type": _decide_second({"type": "yolo"}),
    "a type in capitals": _decide_second({"type": "APPROVE"}),
    "a type that is not allowed": _decide_second(
        {"type": "edit", "edited_action": {"name": "pay", "args": _ARGS}}
    ),
    "an edit without an action": {"decisions": [{"type": "edit"}, _APPROVE]},
    "an edit whose action is a text": _edit_first("pay eve"),
    "an edit without arguments": _edit_first({"name": "pay"}),
    "an edit to an unknown tool": _edit_first({"name": "rob", "args": _ARGS}),
    "an edit to another tool": _edit_first({"name": "look", "args": {"what": "sky"}}),
    "an edit with a wrong type": _edit_first({"name": "pay", "args": {**_ARGS, "amount": "a lot"}}),
    "an edit that lacks an argument": _edit_first({"name": "pay", "args": {"to": "eve"}}),
    "a response without a message": {"decisions": [{"type": "respond"}, _APPROVE]},
}
assert len(MALFORMED) == 25


class MalformedAnswerTests:
    """Every answer is validated before it counts."""

    def test_malformed_answers_change_nothing(self, scenario: Scenario) -> None:
        scenario.run("pair", policy="strict")
        waiting = [request.id for request in scenario.pending()]
        assert len(waiting) == 2
        for name, value in MALFORMED.items():
            result = scenario.answer(value)
            assert result.status in ("paused", "raised"), name
            assert scenario.effects() == [], name
            assert [request.id for request in scenario.pending()] == waiting, name
        assert scenario.asked == 1
        scenario.approve_all()
        result = scenario.resume()
        assert (result.status, result.output) == ("done", LAST)
        assert [made["to"] for made in scenario.effects()] in (["ana", "bob"], ["bob", "ana"])

    @pytest.mark.parametrize("name", ["too few decisions", "an edit to an unknown tool"])
    def test_right_answer_follows_a_malformed_one(self, scenario: Scenario, name: str) -> None:
        scenario.run("pair", policy="strict")
        scenario.answer(MALFORMED[name])
        result = scenario.answer(self.right(scenario))
        assert (result.status, result.output) == ("done", LAST)
        assert len(scenario.effects()) == 2

    def right(self, scenario: Scenario) -> Any:
        """Return an answer for ``AdapterHarness.answer`` that approves every pending request."""
        return scenario.harness.yes(scenario.pending())


class AdapterSuite(
    DecisionTests,
    ParallelTests,
    ConversationTests,
    CoverageTests,
    KillTests,
    UnknownOutcomeTests,
    ToolErrorTests,
    TamperingTests,
    MalformedAnswerTests,
    EscapeTests,
):
    """Tests for every promise of an adapter. Set ``harness`` in a subclass."""

    harness: ClassVar[type[AdapterHarness]]
    #: Tests that make no sense for the framework, by name, with the reason. They are not run.
    cannot: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        for name in cls.cannot:
            assert hasattr(cls, name), f"the suite has no {name}"
            setattr(cls, name, None)

    @pytest.fixture(scope="class")
    @classmethod
    def fork_server(cls) -> Iterator[Callable[[], ForkServer]]:
        """Yield a function that returns the fork server, and starts it on first use."""
        started: list[ForkServer] = []

        def get_server() -> ForkServer:
            if not started:
                started.append(ForkServer(f"{cls.harness.__module__}:{cls.harness.__qualname__}"))
            return started[0]

        yield get_server
        for server in started:
            server.close()

    @pytest.fixture
    def scenario(self, tmp_path: Path, fork_server: Callable[[], ForkServer]) -> Iterator[Scenario]:
        """Yield a new scenario for this harness."""
        scenario = Scenario(type(self).harness, tmp_path, fork_server)
        yield scenario
        scenario.close()
