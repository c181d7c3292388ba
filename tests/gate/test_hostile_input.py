"""Huge, deep and hostile input is shown completely, or refused with the limit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from cases import RUN, Case

from sayso import Gate, InvalidCall, InvalidDecision, Option, Question, text
from sayso.errors import InvalidPolicy, SaysoError, StoreError
from sayso.policy import Policy, Rule

#: Text that would like to be something else: escapes, bidi, zero-width, tags, markup, SQL, NUL.
HOSTILE = (
    "\x1b[2J\x1b[31mred\x07\r\n\x00nul\x7f \u202eevil\u202c\u200b\u2066x\u2069\ufeff"
    "\U000e0041\U000e0042 <script>alert(1)</script> [b]x[/b] <!here> '; DROP TABLE call; -- "
    "{{7*7}} ${jndi:x} ⟨U+202E⟩ \u2028\u2029 \U0001f469\u200d\U0001f4bb"
)
HALF = "half a pair: \ud800"


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def echo(case: Case) -> Any:
    """A guarded function that takes and gives anything."""

    @case.gate.guard(needs_approval=True)
    def echo(value: Any) -> Any:
        case.ran.append(value)
        return value

    return echo


# -- arguments


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        {f"key {n}": n for n in range(10_000)},
        deep(150),
        HOSTILE,
        {HOSTILE: HOSTILE},
        [],
        {},
        "",
        None,
        [None, True, 0, -0.0, 1.5, 2**53 - 1, 1e300],
    ],
    ids=lambda value: f"{type(value).__name__} of {len(str(value))}",
)
def test_arguments_are_shown_in_full_and_run_unchanged(case: Case, echo: Any, value: Any) -> None:
    request = case.paused(lambda: echo(value))
    assert case.inbox.get_sync(request.id).args == {"value": value}
    assert not text.visible("\n".join(text.lines(dict(request.args)))).hidden
    case.decide(request.approve())
    assert case.enter(lambda: echo(value)) == value
    assert case.ran == [value]


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ("x" * 5_000_000, "4,194,304 bytes"),
        ({f"key {n}": n for n in range(100_001)}, "100,000 keys"),
        (deep(500), "200 levels"),
        (deep(5_000), "200 levels"),
        (2**53, "9,007,199,254,740,991"),
        (-(10**400), "9,007,199,254,740,991"),
        (math.nan, "nan is not a JSON number"),
        (math.inf, "inf is not a JSON number"),
        (HALF, "surrogate"),
        ({HALF: 1}, "surrogate"),
        (object(), "no JSON form"),
    ],
    ids=lambda value: f"{type(value).__name__}"[:20],
)
def test_oversized_arguments_are_refused(case: Case, echo: Any, value: Any, limit: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        case.enter(lambda: echo(value))
    assert limit in str(caught.value)
    assert case.store.events() == []
    assert case.ran == []


def test_arguments_are_shown_as_json_stores_them(case: Case, echo: Any) -> None:
    for number, (value, stored) in enumerate([((1, 2), [1, 2]), ({1: 2}, {"1": 2})]):
        request = case.approved(lambda v=value: echo(v), f"run {number}")
        assert request.args == {"value": stored}
        case.enter(lambda v=value: echo(v), f"run {number}")
        assert case.ran[-1] == stored


def test_mistyped_argument_is_refused_by_name(case: Case) -> None:
    pay = case.paying()
    for args, path in [
        (("bo", "three"), "amount"),
        ((5,), "to"),
        ((None,), "to"),
        ((["bo"],), "to"),
        (("bo", 2.5), "amount"),
    ]:
        with pytest.raises(InvalidCall, match=path):
            pay(*args)
    for kwargs in ({}, {"to": "bo", "too": "bo"}, {"amount": 3}):
        with pytest.raises(TypeError, match="pay"):
            pay(**kwargs)
    assert case.store.events() == []


# -- every other field


def test_hostile_text_is_stored_unchanged(case: Case) -> None:
    name = HOSTILE[:200]
    agent = Case(case.store, agent=name)
    options = (Option(HOSTILE + "1", HOSTILE + "2", HOSTILE), Option("two", HOSTILE))
    question = Question(HOSTILE, options)
    asked = agent.paused(
        lambda: agent.gate.ask_sync(question, note=HOSTILE, description=HOSTILE, key=name),
        name,
        requester=name,
    )
    shown = case.inbox.get_sync(asked.id)
    assert (shown.agent, shown.run, shown.requester) == (name,) * 3
    assert (shown.note, shown.description) == (HOSTILE,) * 2
    assert shown.question == question
    assert case.inbox.pending_sync(q="DROP TABLE").items == (shown,)
    agent.decide(shown.respond(HOSTILE))
    assert agent.enter(lambda: agent.gate.ask_sync(question, key=name), name) == HOSTILE


def test_hostile_text_of_reviewers_is_stored_unchanged(case: Case) -> None:
    request = case.paused(lambda: case.gate.confirm_sync(HOSTILE, {HOSTILE: [HOSTILE]}))
    assert request.args == {"text": HOSTILE, "details": {HOSTILE: [HOSTILE]}}
    with pytest.raises(InvalidDecision, match="remove it"):
        case.decide(request.reject(HOSTILE), HOSTILE)  # but a name has nothing hidden in it
    decided = case.decide(request.reject(HOSTILE), "<b>ana</b> {{7*7}}")
    assert decided.decision is not None
    assert (decided.decision.by, decided.decision.message) == ("<b>ana</b> {{7*7}}", HOSTILE)
    assert case.enter(lambda: case.gate.confirm_sync(HOSTILE, {HOSTILE: [HOSTILE]})) is False


LONG = "x" * 5_000_000


NEEDED = ("agent", "run", "requester", "question", "label")
FIELDS = (*NEEDED, "note", "description", "key")


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *((field, bad) for field in FIELDS for bad in (HALF, LONG, 5, b"bytes")),
        *((field, None) for field in NEEDED),
    ],
    ids=lambda value: str(value)[:12],
)
def test_unstorable_text_is_refused_without_effect(case: Case, field: str, bad: Any) -> None:
    with pytest.raises((SaysoError, TypeError)) as caught:
        _ask_with(case, field, bad)
    assert len(str(caught.value)) < 1_000
    if bad is LONG:
        assert any(char.isdigit() for char in str(caught.value)), "the limit is in the message"
    assert case.store.events() == []
    request = case.paused(lambda: case.gate.ask_sync("Does it still work?"))
    assert case.decide(request.respond("yes")).status == "responded"


def _ask_with(case: Case, field: str, bad: Any) -> None:
    ask = case.gate.ask_sync
    if field == "agent":
        Gate(case.store, agent=bad, wait=0).ask_sync("Which?")
    elif field == "run":
        case.enter(lambda: ask("Which?"), bad)
    elif field == "requester":
        case.enter(lambda: ask("Which?"), requester=bad)
    elif field == "question":
        case.enter(lambda: ask(Question(bad)))
    elif field == "label":
        case.enter(lambda: ask(Question("Which?", (Option(bad), Option("two")))))
    else:
        case.enter(lambda: ask("Which?", **{field: bad}))


def test_guard_refuses_unstorable_text(case: Case) -> None:
    for field in ("note", "description"):
        for bad in (HALF, LONG):
            with pytest.raises((SaysoError, TypeError)):
                case.enter(lambda f=field, b=bad: case.paying(**{f: b})("bo"))
    for name in (HALF, LONG, "", "with space", HOSTILE):
        with pytest.raises(TypeError, match="is not a valid tool name"):
            case.paying(name=name)
    assert case.store.events() == []


def test_hostile_rule_description_does_not_break_requests(case: Case) -> None:
    for described in (lambda call: HALF, lambda call: LONG, lambda call: 5):
        ruled = Case(case.store, policy=Policy([Rule("pay", description=described)]))
        try:
            ruled.paused(lambda ruled=ruled: ruled.paying()("bo"), "ruled")
        except SaysoError:
            assert case.inbox.pending_sync().items == ()
    assert case.paused(lambda: case.paying()("bo")).status == "pending"


# -- previews


def test_async_preview_is_awaited(case: Case) -> None:
    async def preview(to: str, amount: int) -> Any:
        return {"rows": amount}

    request = case.paused(lambda: case.paying(preview=preview)("bo"))
    assert request.preview == {"rows": 3}


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (HOSTILE, HOSTILE),
        ({"rows": 3}, {"rows": 3}),
        (HALF, "no preview: InvalidCall"),
        (LONG, "no preview: InvalidCall"),
        (object(), "no preview: InvalidCall"),
        (ZeroDivisionError(HALF), "no preview: ZeroDivisionError"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_failed_preview_states_its_reason(case: Case, shown: Any, says: Any) -> None:
    def preview(to: str, amount: int) -> Any:
        if isinstance(shown, Exception):
            raise shown
        return shown

    request = case.paused(lambda: case.paying(preview=preview)("bo"))
    if isinstance(says, str) and says.startswith("no preview"):
        assert request.preview.startswith(says)
    else:
        assert request.preview == says
    assert case.decide(request.approve()).status == "approved"
    assert case.enter(lambda: case.paying(preview=preview)("bo"), RUN) == "paid bo 3"


@pytest.mark.parametrize("wait", [math.nan, math.inf, -1, True, "5"])
def test_wait_is_a_time(case: Case, wait: Any) -> None:
    with pytest.raises(InvalidCall, match="use seconds"):
        case.gate.ask_sync("Which?", wait=wait)


@pytest.mark.parametrize("lease", [0, -1, math.nan, "30", None])
def test_lease_is_a_time(lease: Any) -> None:
    with pytest.raises(InvalidCall, match="a positive number of seconds"):
        Gate("memory://", lease=lease)


@pytest.mark.parametrize("details", ["abc", [1], 7])
def test_details_are_an_object(case: Case, details: Any) -> None:
    with pytest.raises(InvalidCall, match="mapping"):
        case.gate.confirm_sync("Ship it?", details)


@pytest.mark.parametrize("policy", [3, ["rule"], b"x"])
def test_policy_is_a_policy_or_a_path(policy: Any) -> None:
    with pytest.raises(InvalidPolicy, match="path of a policy file"):
        Gate("memory://", policy=policy)


@pytest.mark.parametrize("store", [None, "sayso", 7])
def test_store_is_a_url_or_a_store(store: Any) -> None:
    with pytest.raises(StoreError, match="sqlite:///"):
        Gate(store)


def test_generators_cannot_be_guarded(case: Case) -> None:
    def numbers() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    for function in (numbers, later):
        with pytest.raises(TypeError, match="return a list"):
            case.gate.guard(function)
