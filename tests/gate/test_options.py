"""Boolean options: any other value is refused."""

from __future__ import annotations

from typing import Any

import pytest

from sayso import (
    Agent,
    Gate,
    InvalidCall,
    InvalidPolicy,
    Paused,
    Policy,
    Question,
    Rule,
    SaysoError,
    tool,
)
from sayso.testing import ScriptedModel


def pay(to: str) -> str:
    return to


def guarded(**options: Any) -> None:
    Gate().guard(**options)(pay)


def offered(**options: Any) -> None:
    tool(**options)(pay)


@pytest.mark.parametrize("name", ["needs_approval", "effect", "requester_decides"])
@pytest.mark.parametrize("made", [guarded, offered])
def test_text_is_no_boolean_option(name: str, made: Any) -> None:
    with pytest.raises((TypeError, InvalidPolicy), match=f"{name}='no': use"):
        made(**{name: "no"})


@pytest.mark.parametrize("made", [guarded, offered])
def test_needs_approval_none_is_refused(made: Any) -> None:
    with pytest.raises(TypeError, match="needs_approval=None: use"):
        made(needs_approval=None)


async def later() -> dict[str, str]:
    return {}


@pytest.mark.parametrize("made", [guarded, offered])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": 5}, "5 is not a valid tool name"),
        ({"binds": {"branch": "main"}}, "pass a function"),
        ({"binds": later}, "use a sync function"),
        ({"preview": "soon"}, "preview='soon': pass a function"),
        ({"description": 5}, "description: pass a string, not int"),
        ({"on_duplicate": "result"}, "on_duplicate= needs effect_key="),
        ({"effect_key": str, "effect": "read"}, "a read has no effect to keep unique"),
        ({"effect_key": later}, "use a sync function"),
        ({"effect_key": "pay:{order}"}, "there is no argument 'order': use to"),
    ],
)
def test_unusable_options_are_refused_at_once(made: Any, options: Any, said: str) -> None:
    with pytest.raises((TypeError, InvalidCall), match=said):
        made(**options)


@pytest.mark.parametrize("facts", [None, ["main"], [("branch", "main")], "main"])
def test_surroundings_are_names_and_values(facts: Any) -> None:
    gate = Gate(wait=0)
    paying = gate.guard(binds=lambda: facts)(pay)
    with pytest.raises(InvalidCall, match=r"binds= returned .*: return a mapping"):
        paying("ana")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda gate: gate.guard(key="order-17")(pay), "key=: pass a function of the arguments"),
        (lambda gate: gate.ask_sync(5), r"pass a string or a sayso\.Question"),
        (lambda gate: gate.confirm_sync("  "), "describe what to approve"),
        (lambda gate: gate.cancel_sync("no-such-run"), "no run 'no-such-run'"),
        (lambda gate: Gate(models=5), "models=5: pass a mapping"),
        (lambda gate: Gate(models={"small": 5}), "pass a function of a request"),
    ],
)
def test_gate_says_what_to_pass(use: Any, message: str) -> None:
    with Gate(wait=0) as gate, pytest.raises((TypeError, SaysoError), match=message):
        use(gate)


def test_run_is_entered_once() -> None:
    with Gate(wait=0) as gate:
        run = gate.run("order-17")
        with run, pytest.raises(SaysoError, match="is entered already"):
            run.__enter__()


@pytest.mark.parametrize("any_order", ["yes", 1, None])
def test_order_of_a_plan_is_a_boolean(any_order: Any) -> None:
    refused = pytest.raises(InvalidCall, match="use True or False")
    with Gate(wait=0) as gate, gate.run("order-17"), refused:
        gate.plan_sync([(pay, {"to": "ana"})], any_order=any_order)


@pytest.mark.parametrize("channels", [5, [5], ["mail"], None])
def test_channel_can_be_called(channels: Any) -> None:
    with pytest.raises(TypeError, match="pass a list of async functions"):
        Gate(channels=channels)


def test_strict_must_be_a_boolean() -> None:
    with pytest.raises(TypeError, match="strict='no': use True or False"):
        offered(strict="no")


@pytest.mark.parametrize("options", ["yes or no", {"yes": 1, "no": 2}, 5, None])
def test_options_of_a_question_are_a_list(options: Any) -> None:
    with pytest.raises(InvalidCall, match="options is a list of strings or Options, not"):
        Question("Sure?", options=options)


def test_question_with_a_quorum_is_refused() -> None:
    def weigh(parcel: str) -> float: ...

    with pytest.raises(InvalidPolicy, match="quorum=2: only approvals count"):
        Gate(wait=0).ask_sync("How many?", quorum=2)
    with pytest.raises(InvalidPolicy, match="leave out the quorum; one answer is enough"):
        tool(quorum=2)(weigh)


@pytest.mark.parametrize("name", ["", "  ", 5, None, "x" * 201, "half a pair: \ud800"])
def test_empty_or_long_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidCall, match="agent"):
        Gate(agent=name)
    with pytest.raises((ValueError, InvalidCall), match=r"needs a name|half"):
        Agent(name, model=ScriptedModel([])).gate  # noqa: B018 - opened on first use
    gate = Gate(wait=0)
    with gate.run("order-17"):
        with pytest.raises(InvalidCall, match="key"):
            gate.once_sync(name, pay, "ana")
        assert gate.store.run("order-17") is None


@pytest.mark.parametrize("thread", ["", "  ", 5, "@store", "x" * 201, "half a pair: \ud800"])
def test_unstorable_thread_name_is_refused(thread: Any) -> None:
    agent = Agent("clerk", model=ScriptedModel([]))
    with pytest.raises(InvalidCall, match="thread"):
        agent.run_sync("Hello", thread=thread)


@pytest.mark.parametrize("key", ["", "  ", 5.0, ["a"], object(), "x" * 201])
def test_key_is_a_text(key: Any) -> None:
    gate = Gate(wait=0)
    with pytest.raises(InvalidCall, match="key"):
        gate.guard(key=lambda args: key)(pay)("ana")
    with pytest.raises(InvalidCall, match="key"):
        gate.ask_sync("How many?", key=key)


@pytest.mark.parametrize("key", ["", None, 5.0, "x" * 201])
def test_key_made_from_arguments_is_a_text(key: Any) -> None:
    with Gate(wait=0) as gate, gate.run("order-17"), pytest.raises(InvalidCall, match="key"):
        gate.guard(key=lambda args: key)(pay)("ana")


def test_key_may_be_the_number_of_something() -> None:
    gate = Gate(wait=0)

    @gate.guard(needs_approval=False, key=lambda args: args["order"])
    def ship(order: int, to: str) -> str:
        return to

    with gate.run("orders"):
        assert (ship(17, "ana"), ship(17, "ana"), ship(18, "bo")) == ("ana", "ana", "bo")
    assert len(gate.store.calls_of("orders")) == 2


@pytest.mark.parametrize("said", [0, [], "", None, 1], ids=repr)
@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("by", ["function", "rule"])
def test_predicate_without_boolean_asks(said: Any, later: bool, by: str) -> None:
    async def async_predicate(args: dict[str, Any]) -> Any:
        return said

    predicate = async_predicate if later else lambda args: said
    if by == "rule":
        gate = Gate(policy=Policy([Rule("pay", when=predicate, verdict="allow")]), wait=0)
        guarded = gate.guard(needs_approval=False)(pay)
    else:
        gate = Gate(wait=0)
        guarded = gate.guard(needs_approval=predicate)(pay)
    with pytest.raises(Paused) as caught:
        guarded("bo")
    (request,) = caught.value.requests
    assert "return True or False" in request.risk.reasons[0]
