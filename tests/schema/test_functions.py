"""All that a callable runs with is shown: partials, wrappers, methods, objects, defaults."""

from __future__ import annotations

import functools
import inspect
import json
from typing import Any

import pytest
from pydantic import BaseModel

import sayso
from sayso import Edit, Gate, Inbox, InvalidCall, InvalidDecision, Paused
from sayso.schema import Signature
from sayso.testing import ScriptedModel, call, calls


class World:
    """A gate, its inbox, and what ran."""

    def __init__(self) -> None:
        self.gate = Gate(wait=0)
        self.inbox = Inbox(self.gate.store)
        self.ran: list[Any] = []

    def asked(self, call: Any, *args: Any, **kwargs: Any) -> sayso.Request:
        with pytest.raises(Paused) as caught, self.gate.run("r"):
            call(*args, **kwargs)
        (request,) = caught.value.requests
        return request

    def again(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        with self.gate.run("r"):
            return call(*args, **kwargs)

    def pay(self, to: str, amount: int, note: str = "") -> str:
        self.ran.append((to, amount, note))
        return "paid"


@pytest.fixture
def world() -> World:
    return World()


def shown(function: Any, **given: Any) -> dict[str, Any]:
    """The stored arguments of a call."""
    found: dict[str, Any] = json.loads(Signature.of(function).intake(given))
    return found


# -- partials


def test_fixed_argument_is_shown_and_runs(world: World) -> None:
    pay = world.gate.guard(needs_approval=True)(functools.partial(world.pay, "ATTACKER"))
    request = world.asked(pay, 5)
    assert request.args == {"to": "ATTACKER", "amount": 5, "note": ""}
    assert request.schema is not None
    assert request.schema["properties"]["to"]["const"] == "ATTACKER"
    world.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert world.again(pay, 5) == "paid"
    assert world.ran == [("ATTACKER", 5, "")]


def test_fixed_argument_is_in_digest(world: World) -> None:
    def pay(to: str, amount: int) -> str:
        world.ran.append(to)
        return to

    asked = world.asked(world.gate.guard(functools.partial(pay, "bo")), 5)
    world.inbox.decide_sync(asked.id, asked.approve(), by="ana")
    # The next release pays somebody else.
    other = world.asked(world.gate.guard(functools.partial(pay, "eve")), 5)
    assert (other.args["to"], other.id == asked.id) == ("eve", False)
    assert world.ran == []


def test_fixed_argument_cannot_be_edited(world: World) -> None:
    pay = world.gate.guard(needs_approval=True)(functools.partial(world.pay, "bo"))
    request = world.asked(pay, 5)
    with pytest.raises(InvalidDecision, match=r"args\.to"):
        world.inbox.decide_sync(request.id, request.edit({"to": "eve"}), by="ana")
    world.inbox.decide_sync(request.id, request.edit({"amount": 6}), by="ana")
    assert world.again(pay, 5) == "paid"
    assert world.ran == [("bo", 6, "")]
    with pytest.raises(TypeError, match="to"):
        pay(5, to="eve")


async def test_model_cannot_change_fixed_argument(world: World) -> None:
    wants = call("pay", {"to": "eve", "amount": 1}), call("pay", {"to": "bo", "amount": 2})
    model = ScriptedModel([calls(*wants), "Done."])
    pay = sayso.tool(functools.partial(world.pay, "bo"))
    agent = sayso.Agent("a", model=model, tools=[pay])
    assert (await agent.run("go")).status == "done"
    assert world.ran == [("bo", 2, "")]


class Account(BaseModel):
    owner: str


@pytest.mark.parametrize(
    ("made", "given"),
    [
        (lambda pay: functools.partial(pay, "bo", 5), {"note": "x"}),
        (lambda pay: functools.partial(functools.partial(pay, "bo"), 5, note="x"), {}),
        (lambda pay: functools.partial(pay, to="bo"), {"amount": 5, "note": "x"}),
        (functools.partial, {"to": "bo", "amount": 5, "note": "x"}),
    ],
    ids=["all", "nested", "keyword", "empty"],
)
def test_partials_of_every_form(world: World, made: Any, given: dict[str, Any]) -> None:
    function = made(world.pay)
    whole = {"to": "bo", "amount": 5, "note": "x"}
    assert shown(function, **given) == whole
    args, kwargs = Signature.of(function).load(json.dumps(whole).encode())
    function(*args, **kwargs)
    assert world.ran == [("bo", 5, "x")]


def test_positional_only_parameters_keep_their_order() -> None:
    def pay(to: str, from_: str, /, amount: int) -> Any:
        return to, from_, amount

    made = functools.partial(pay, "bo")
    signature = Signature.of(made)
    data = signature.intake(signature.bind(("ana", 5), {}))
    assert json.loads(data) == {"to": "bo", "from_": "ana", "amount": 5}
    args, kwargs = signature.load(data)
    assert made(*args, **kwargs) == ("bo", "ana", 5)


def test_fixed_model_is_shown_completely(world: World) -> None:
    def pay(account: Account, amount: int) -> None: ...

    made = functools.partial(pay, Account(owner="bo"))
    assert shown(made, amount=1) == {"account": {"owner": "bo"}, "amount": 1}


def test_changed_fixed_value_does_not_run(world: World) -> None:
    def pay(to: list[str], amount: int) -> str:
        world.ran.append(list(to))
        return "paid"

    to = ["bo"]
    guarded = world.gate.guard(needs_approval=True)(functools.partial(pay, to))
    request = world.asked(guarded, 5)
    world.inbox.decide_sync(request.id, request.approve(), by="ana")
    to.append("eve")
    with pytest.raises(InvalidCall, match="to: "):
        world.again(guarded, 5)
    assert world.ran == []
    signature = Signature.of(functools.partial(pay, to))
    data = signature.intake({"amount": 1})
    to.append("mallory")
    with pytest.raises(InvalidCall, match="to: "):
        signature.load(data)


class Till:
    """An object whose methods pay."""

    def pay(self, to: str, amount: int) -> Any:
        return to, amount

    pay_bo = functools.partialmethod(pay, "bo")

    def __call__(self, to: str, amount: int) -> Any:
        return to, amount


def test_partial_method_is_a_partial() -> None:
    signature = Signature.of(Till().pay_bo)
    data = signature.intake(signature.bind((5,), {}))
    assert json.loads(data) == {"to": "bo", "amount": 5}
    args, kwargs = signature.load(data)
    assert Till().pay_bo(*args, **kwargs) == ("bo", 5)


def test_partial_of_an_object_is_a_partial() -> None:
    assert shown_named(functools.partial(Till(), "bo"), amount=5) == {"to": "bo", "amount": 5}


def shown_named(function: Any, **given: Any) -> Any:
    return json.loads(Signature.of(function, name="pay").intake(given))


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (functools.partial(Till.pay, Till()), "'self'.*functools.partial.*no JSON form"),
        (functools.partial(lambda db, to: to, object()), "'db'.*functools.partial.*no JSON form"),
        (Till.pay_bo, r"takes .*name each parameter|takes 'self'"),
        (functools.partial(lambda *to: to, "bo"), "name each parameter"),
        (functools.partial(lambda n, to: to, 2**60), "functools.partial.*declare it as str"),
    ],
    ids=["self", "an object", "method of no object", "more than is named", "a large number"],
)
def test_function_that_cannot_be_shown_is_refused(function: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=f"(?s){advice}"):
        Signature.of(function, name="pay")


def test_fixed_value_of_wrong_type_is_refused() -> None:
    def pay(to: str, amount: int) -> None: ...

    with pytest.raises(TypeError, match=r"'to' of pay.*functools\.partial"):
        Signature.of(functools.partial(pay, 5))


# -- wrappers


def bare(to: str, amount: int) -> Any:
    """Pay somebody."""
    return to, amount


def passing(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@functools.wraps(bare)
def with_fee(to: str, amount: int, fee: int = 100) -> Any:
    return to, amount + fee


@functools.wraps(bare)
def other_way(amount: int, to: str = "bo") -> Any:
    return to, amount


@functools.wraps(bare)
def half(*args: Any, fee: int = 100, **kwargs: Any) -> Any:
    return bare(*args, **kwargs)


@functools.wraps(bare)
def first_own(account: str, *args: Any, **kwargs: Any) -> Any:
    return bare(*args, **kwargs)


def lying(to: str, amount: int, fee: int = 100) -> Any:
    return to, amount + fee


lying.__signature__ = inspect.signature(bare)  # type: ignore[attr-defined]


def declared(*args: Any, **kwargs: Any) -> Any:
    """Pay somebody."""
    return bare(*args, **kwargs)


declared.__signature__ = inspect.signature(bare)  # type: ignore[attr-defined]


def test_variadic_function_may_declare_its_signature() -> None:
    assert shown(declared, to="bo", amount=5) == {"to": "bo", "amount": 5}


def test_passing_wrapper_shows_wrapped_signature() -> None:
    for function in (passing(bare), passing(passing(bare))):
        assert shown(function, to="bo", amount=5) == {"to": "bo", "amount": 5}
        assert Signature.of(function).description == "Pay somebody."


@pytest.mark.parametrize("around", [lambda function: function, passing], ids=["plain", "wrapped"])
def test_wrapper_shows_its_parameters(around: Any) -> None:
    whole = {"to": "bo", "amount": 5, "fee": 100}
    assert shown(around(with_fee), to="bo", amount=5) == whole
    assert shown(around(lying), to="bo", amount=5) == whole
    assert shown(around(other_way), amount=5) == {"amount": 5, "to": "bo"}


@pytest.mark.parametrize("wrapper", [half, first_own], ids=["keyword", "positional"])
def test_wrapper_hiding_parameters_is_refused(wrapper: Any) -> None:
    with pytest.raises(TypeError, match="name each parameter"):
        Signature.of(wrapper)


def test_passing_object_shows_wrapped_signature() -> None:
    class Retried:
        def __init__(self, function: Any) -> None:
            functools.update_wrapper(self, function)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    for function in (Retried(bare), functools.lru_cache(bare)):
        assert shown(function, to="bo", amount=5) == {"to": "bo", "amount": 5}


def test_method_behind_a_wrapper_is_still_a_method() -> None:
    class Wrapped(Till):
        pay = passing(Till.pay)

    signature = Signature.of(Wrapped().pay)
    args, kwargs = signature.load(signature.intake({"to": "bo", "amount": 5}))
    assert Wrapped().pay(*args, **kwargs) == ("bo", 5)


def test_partial_of_wrapper_fixes_its_parameter() -> None:
    made = functools.partial(with_fee, "bo")
    assert shown(made, amount=5) == {"to": "bo", "amount": 5, "fee": 100}


# -- defaults


def test_defaults_are_shown_and_passed(world: World) -> None:
    """A default that is changed behind a guard's back is not what runs."""

    def pay(to: str = "bo", amounts: list[int] = [1]) -> str:  # noqa: B006
        world.ran.append((to, list(amounts)))
        amounts.append(2)
        return "paid"

    guarded = world.gate.guard(needs_approval=True)(pay)
    request = world.asked(guarded)
    assert request.args == {"to": "bo", "amounts": [1]}
    world.inbox.decide_sync(request.id, request.approve(), by="ana")
    pay.__defaults__ = ("eve", [3])
    assert world.again(guarded) == "paid"
    assert world.ran == [("bo", [1])]


def test_lambda_shows_its_defaults() -> None:
    sends = [lambda amount, to=to: (to, amount) for to in ("bo", "eve")]
    assert [shown_named(send, amount=5)["to"] for send in sends] == ["bo", "eve"]


def test_edit_of_partial_keeps_fixed_argument(world: World) -> None:
    pay = world.gate.guard(needs_approval=True)(functools.partial(world.pay, "bo"))
    request = world.asked(pay, 5)
    given = Edit({"amount": 5}, request=request.id, seen_digest=request.digest)
    edited = world.inbox.decide_sync(request.id, given, by="ana")
    assert edited.args["to"] == "bo"  # left out, it is what it was
