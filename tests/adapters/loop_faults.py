"""Faults of adapters: each is a change of the page's adapter, and the suite's test that fails."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    #: What the page says, and what the faulty adapter does instead.
    change: tuple[str, str]
    #: The test of ``AdapterSuite`` that must fail.
    test: str


_KEY = 'f"{turn}/{reply}/{position}"'
_NAMED = "{key_of(log.turn, number, position): call for position, call in enumerate(made)}"
_FAILED = "raise ToolFailed(outcome.text)"
_RUN = "run=lambda args: function(**args)"
_OUTCOME = "outcomes.append(await outcome_with_errors(log.calls, calls[key]))"
_ASK = "await log.calls.ask(list(calls.values()))  # one commit for the turn"
_PAUSE = "paused = pause  # those that may run do not wait for it"
_STORE = 'await log.reply("", reply, content=reply["content"])  # before its calls are made'
_SETTLE = 'outcomes[:] = await self._settled(log, number, reply["calls"])'
_NEXT = "\n            "
_SWALLOWED = """run=lambda args: Loop(None, {"it": function}).result(
            {"name": "it", "args": args}
        )"""
_PARALLEL = "test_mixed_reply_is_decided_at_different_times"

FAULTS = {
    # -- which call it is
    "id without turn": Fault(
        (_KEY, 'f"{reply}/{position}"'), "test_repeated_id_in_later_turn_is_asked_again"
    ),
    "id without reply": Fault((_KEY, 'f"{turn}/{position}"'), "test_repeated_id_is_another_call"),
    "id of the arguments": Fault(
        (_NAMED, """{f"{log.turn}/{number}/{call['args']}": call for call in made}"""),
        "test_equal_calls_in_one_reply_both_run",
    ),
    "id of the tool": Fault(
        (_NAMED, """{f"{log.turn}/{call['name']}": call for call in made}"""),
        "test_repeated_id_uses_the_new_arguments",
    ),
    "id of the model": Fault(
        (_NAMED, """{f"{log.turn}/{number}/{call['id']}": call for call in made}"""),
        "test_equal_ids_run_two_calls",
    ),
    # -- the conversation
    "threads share a log": Fault(
        ("await self.open_log(thread)  # raises", 'await self.open_log("thread-1")  # raises'),
        "test_threads_are_independent",
    ),
    "history repeated": Fault(
        ("messages=messages[len(log.history) :]", "messages=messages"),
        "test_third_turn_repeats_no_earlier_turn",
    ),
    "superseded turn without its results": Fault(
        ("closing_text(await to_thread(self.calls.row_in_any_run, key))", "closing_text(None)"),
        "test_superseded_turn_keeps_results",
    ),
    "history lost": Fault(
        ("messages = [*log.history, {", "messages = [{"), "test_later_turn_knows_earlier_ones"
    ),
    "history not stored": Fault(
        ("content=output, messages=messages[len(log.history) :]", "content=output"),
        "test_later_turn_knows_earlier_ones",
    ),
    "superseded turn lost": Fault(
        ("before = await log.superseded()", "before: list[Message] = []"),
        "test_superseded_call_has_a_result",
    ),
    "superseded call without result": Fault(
        (
            """                messages.append({"role": "tool", "id": call["id"], "content": text})
        return messages""",
            "        return messages",
        ),
        "test_superseded_call_has_a_result",
    ),
    "reply not stored": Fault((_STORE, "pass"), "test_approve"),
    "reply stored after its calls": Fault(
        (_STORE + _NEXT + _SETTLE, "pass" + _NEXT + _SETTLE + _NEXT + _STORE), "test_approve"
    ),
    # -- asking and stopping
    "stops before it asks": Fault((_ASK, "raise sayso.Paused(log.run, ())"), "test_approve"),
    "asks about the first call only": Fault(
        (_ASK, "calls = dict([*calls.items()][:1])\n        " + _ASK), _PARALLEL
    ),
    "pause becomes text": Fault(
        (_PAUSE, 'outcomes.append(Outcome(ok=False, value=None, text="It waits."))'),
        "test_approve",
    ),
    "pause stops the other calls": Fault((_PAUSE, "raise"), _PARALLEL),
    "model goes on before all results": Fault(
        ("if paused is not None:", "if paused is not None and not outcomes:"), _PARALLEL
    ),
    "defaults not shown": Fault(
        ("TypeAdapter(function).json_schema()", '{"type": "object"}'), "test_approve"
    ),
    "description not described": Fault(
        ('description=function.__doc__ or ""', 'description=""'), "test_tool_changed"
    ),
    # -- running
    "arguments of the model run": Fault(
        (_RUN, 'run=lambda args: function(**call["args"])'), "test_edit"
    ),
    "stored result not used": Fault(
        (_OUTCOME, _OUTCOME + "\n                await calls[key].run(call['args'])"), _PARALLEL
    ),
    "allowed call past the gate": Fault(
        (
            _OUTCOME,
            """if call["name"] == "look":
                    text = await calls[key].run(call["args"])
                    outcomes.append(Outcome(ok=True, value=text, text=text))
                    continue
                """
            + _OUTCOME,
        ),
        _PARALLEL,
    ),
    "error recorded as success": Fault(
        (
            _RUN,
            "run=lambda args: Loop(None, {'it': function}).result({'name': 'it', 'args': args})",
        ),
        "test_error_is_recorded_as_failure",
    ),
    "time-out recorded as success": Fault(
        (
            _RUN,
            "run=lambda args: Loop(None, {'it': function}).result({'name': 'it', 'args': args})",
        ),
        "test_time_out_leaves_approved_call_in_doubt",
    ),
    "answers of questions lost": Fault(
        (
            _RUN,
            """run=lambda args: __import__("contextvars").Context().run(
            __import__("asyncio").ensure_future, function(**args)
        )""",
        ),
        "test_question",
    ),
    "tools not covered": Fault(
        ('coverage.gated(gate.agent, "tool", name)', "pass"), "test_coverage_names_each_tool"
    ),
    "removed tool crashes": Fault(
        ('if call["name"] in tools', "if call"), "test_removed_tool_cancels_the_call"
    ),
    "call of removed tool left open": Fault(
        (
            'await log.calls.gone(key, call["name"])',
            'Outcome(ok=False, value=None, text="There is no such tool.")',
        ),
        "test_removed_tool_cancels_the_call",
    ),
    # -- what the model receives
    "refusal marked as success": Fault((_FAILED, "return outcome.text"), "test_reject_with_reason"),
    "denial marked as success": Fault(
        (_FAILED, "return outcome.text"), "test_denied_without_asking"
    ),
    "failure marked as success": Fault(
        (_FAILED, "return outcome.text"), "test_error_is_recorded_as_failure"
    ),
    "reason lost": Fault((_FAILED, 'raise ToolFailed("refused")'), "test_reject_with_reason"),
    "refusal stops the agent": Fault(
        (_FAILED, "raise sayso.Paused(log.run, ())"), "test_reject_with_reason"
    ),
    "edit not reported": Fault(
        ("return outcome.text\n\n        messages", "return outcome.value\n\n        messages"),
        "test_edit",
    ),
    "answer of a person lost": Fault(
        (
            "return outcome.text\n\n        messages",
            'return "" if outcome.by_person else outcome.text\n\n        messages',
        ),
        "test_respond",
    ),
    "results in another order": Fault(("outcomes.pop(0)", "outcomes.pop()"), _PARALLEL),
}
