"""One effect per key in the store, for any number of concurrent callers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import shop
from cases import Case

from sayso import DuplicateEffect, InvalidCall, NotExecuted, Policy, ResultNotKept, Rule
from sayso.audit import verify
from sayso.engine.effects import key_of, shown_key
from sayso.rows import CallStatus
from sayso.types import Terms

RACERS = 6


def refunding(case: Case, **options: Any) -> Callable[..., str]:
    """A guarded refund that nobody is asked about; what it did is in ``ran``."""

    @case.gate.guard(**{"needs_approval": False, "effect_key": "refund:{order}", **options})
    def refund(order: str, euros: int = 3) -> str:
        case.ran.append(order)
        return f"receipt {len(case.ran)}"

    return refund


def keys(case: Case) -> dict[str, str]:
    """The keys that are taken, and by which request."""
    return {shown_key(effect.key): effect.call for effect in case.store.effects()}


# -- at the same time


def raced(url: str, **options: Any) -> tuple[list[str], list[Any]]:
    """Let several threads refund the same order, each in a run of its own; what ran, and what each
    of them got."""
    together = threading.Barrier(RACERS)
    ran: list[str] = []
    got: list[Any] = []

    def body(order: str) -> str:
        ran.append(order)
        return f"receipt {len(ran)}"

    gate, refund = shop.guarded(url, body, **options)

    def race(number: int) -> None:
        together.wait(30)
        try:
            with gate.run(f"run-{number}"):
                got.append(refund("17"))
        except DuplicateEffect as error:
            got.append(error)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert verify(gate.store).ok
    held = gate.store.effect("/refund:17")
    assert held is not None
    errors = [error for error in got if isinstance(error, DuplicateEffect)]
    assert {(error.key, error.first) for error in errors} <= {("refund:17", held.call)}
    gate.store.close()
    return ran, got


def test_one_of_many_threads_starts(url: str) -> None:
    ran, got = raced(url)
    assert ran == ["17"]
    assert Counter(type(one).__name__ for one in got) == {"str": 1, "DuplicateEffect": RACERS - 1}


def test_losing_threads_may_receive_the_first_result(url: str) -> None:
    ran, got = raced(url, on_duplicate="result")
    assert ran == ["17"]
    assert len(got) == RACERS
    assert {one for one in got if isinstance(one, str)} == {"receipt 1"}
    gate, refund = shop.guarded(url, on_duplicate="result")
    with gate.run("afterwards"):
        assert refund("17") == "receipt 1"
    gate.store.close()


PROCESS = """
import sys
import shop

def body(order):
    with open(sys.argv[3], "a") as ran:
        ran.write(order + "\\n")
    return "receipt"

gate, refund = shop.guarded(sys.argv[1], body)
print("here", flush=True)
sys.stdin.readline()
for number in range(10):
    try:
        with gate.run(f"{sys.argv[2]}-{number}"):
            refund(str(number))
    except shop.sayso.DuplicateEffect:
        pass
gate.store.close()
"""


@pytest.mark.long
def test_one_of_many_processes_starts(url: str, tmp_path: Path) -> None:
    ran, folder = tmp_path / "ran", Path(__file__).parent
    gate, _ = shop.guarded(url)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, url, f"p{n}", str(ran)], cwd=folder, **pipes
        )
        for n in range(3)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "here\n"  # type: ignore[union-attr]
    for racer in racers:
        racer.stdin.write("go\n")  # type: ignore[union-attr]
        racer.stdin.flush()  # type: ignore[union-attr]
    for racer in racers:
        racer.communicate(timeout=60)
        assert racer.returncode == 0
    assert sorted(ran.read_text().split()) == [str(n) for n in range(10)]
    assert len(gate.store.effects()) == 10
    assert verify(gate.store).ok
    gate.store.close()


# -- when a key is taken, held and free


def test_effect_key_is_taken_at_the_start(case: Case) -> None:
    refund = refunding(case, needs_approval=True)
    first = case.paused(lambda: refund("17"), "one")
    second = case.paused(lambda: refund("17"), "two")
    assert first.effect_key == second.effect_key == "refund:17"
    assert keys(case) == {}
    for request in (first, second):
        case.decide(request.approve())
    assert case.enter(lambda: refund("17"), "two") == "receipt 1"
    with pytest.raises(DuplicateEffect) as refused:
        case.enter(lambda: refund("17"), "one")
    assert (refused.value.key, refused.value.first) == ("refund:17", second.id)
    assert keys(case) == {"refund:17": second.id}
    assert case.ran == ["17"]


def test_certain_failure_frees_the_key(case: Case) -> None:
    refund = refunding(case)

    @case.gate.guard(name="try_refund", needs_approval=False, effect_key="refund:{order}")
    def broken(order: str) -> None:
        assert keys(case)
        raise NotExecuted("no line to the bank")

    with pytest.raises(NotExecuted):
        case.enter(lambda: broken("17"), "one")
    assert keys(case) == {}
    assert case.enter(lambda: refund("17"), "two") == "receipt 1"


def test_unstorable_result_holds_the_key(case: Case) -> None:
    @case.gate.guard(name="odd", needs_approval=False, effect_key="refund:{order}")
    def odd(order: str) -> Any:
        case.ran.append(order)
        return object()

    with pytest.raises(ResultNotKept):
        case.enter(lambda: odd("17"), "one")
    for on_duplicate in ("raise", "result"):
        refund = refunding(case, name=f"refund-{on_duplicate}", on_duplicate=on_duplicate)
        with pytest.raises(DuplicateEffect):
            case.enter(lambda refund=refund: refund("17"), on_duplicate)
    assert case.ran == ["17"]


def test_call_in_doubt_holds_its_key(case: Case) -> None:
    @case.gate.guard(name="cut", needs_approval=False, effect_key="refund:{order}")
    def cut(order: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: cut("17"), "one")
    refund = refunding(case, on_duplicate="result")
    with pytest.raises(DuplicateEffect, match="which is in_doubt"):
        case.enter(lambda: refund("17"), "two")
    case.decide(case.paused(lambda: cut("17"), "one").reject("nobody knows"))
    with pytest.raises(DuplicateEffect, match="which is failed"):
        case.enter(lambda: refund("17"), "three")
    assert case.ran == []


def test_killed_process_holds_its_key(url: str) -> None:
    shop.kill_in_body(url)
    gate, refund = shop.guarded(url, lambda order: "receipt")
    with pytest.raises(DuplicateEffect, match="which is running"), gate.run("other"):
        refund("17")
    with gate.run("another"):
        assert refund("18") == "receipt"
    gate.store.close()


def test_duplicate_stays_failed_after_the_key_is_freed(case: Case) -> None:
    refund = refunding(case)

    @case.gate.guard(name="slow", needs_approval=False, effect_key="refund:{order}")
    def slow(order: str) -> None:
        with pytest.raises(DuplicateEffect):
            case.gate.carry(lambda: refund("17"))()
        raise NotExecuted("no funds")

    with pytest.raises(NotExecuted, match="no funds"):
        case.enter(lambda: slow("17"), "one")
    (refused,) = [c for c in case.store.calls_of("one") if c.tool == "refund"]
    assert refused.status is CallStatus.FAILED
    assert case.enter(lambda: refund("17"), "two") == "receipt 1"


# -- edits


def test_edit_takes_the_key_of_the_new_arguments(case: Case) -> None:
    refund = refunding(case, needs_approval=True)
    request = case.paused(lambda: refund("17"))
    edited = case.decide(request.edit({"order": "18"}))
    assert edited.effect_key == "refund:18"
    assert edited.digest != request.digest
    assert case.enter(lambda: refund("17")) == "receipt 1"
    assert keys(case) == {"refund:18": request.id}
    free = refunding(case, name="free")
    assert case.enter(lambda: free("17"), "two") == "receipt 2"
    with pytest.raises(DuplicateEffect):
        case.enter(lambda: free("18"), "three")


def test_edit_into_a_used_key_is_a_duplicate(case: Case) -> None:
    free = refunding(case, name="free")
    case.enter(lambda: free("18"), "two")
    refund = refunding(case, needs_approval=True)
    request = case.paused(lambda: refund("17"))
    case.decide(request.edit({"order": "18"}))
    with pytest.raises(DuplicateEffect):
        case.enter(lambda: refund("17"))
    assert case.ran == ["18"]


def test_edit_of_another_argument_keeps_the_key(case: Case) -> None:
    refund = refunding(case, needs_approval=True)
    request = case.paused(lambda: refund("17"))
    assert case.decide(request.edit({"euros": 4})).effect_key == "refund:17"
    assert case.enter(lambda: refund("17")) == "receipt 1"


def test_computed_key_is_asked_again_after_an_edit(case: Case) -> None:
    refund = refunding(case, needs_approval=True, effect_key=lambda args: f"refund:{args['order']}")
    request = case.paused(lambda: refund("17"))
    assert request.effect_key == "refund:17"
    case.decide(request.edit({"order": "18"}))
    again = case.paused(lambda: refund("17"))
    assert (again.id, again.effect_key) == (request.id, "refund:18")
    assert case.ran == []
    case.decide(again.approve())
    assert case.enter(lambda: refund("17")) == "receipt 1"
    assert keys(case) == {"refund:18": request.id}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "pass a string that is not empty"),
        (" / ", "pass a string that is not empty"),
        (17, "pass a string that is not empty"),
        ("x" * 501, "effect_key has 501 characters; the limit is 500"),
        ("\ud800", "half a surrogate pair"),
    ],
)
def test_unstorable_computed_key_is_refused(case: Case, key: Any, message: str) -> None:
    refund = refunding(case, effect_key=lambda args: key)
    with pytest.raises(InvalidCall, match=message):
        case.enter(lambda: refund("17"))
    assert case.ran == []


def test_rules_key_names_arguments_of_the_call(case: Case) -> None:
    rule = Rule("pay", verdict="allow", effect_key="pay:{invoice}")
    ruled = Case(case.store, policy=Policy([rule]))
    pay = ruled.paying()
    with pytest.raises(InvalidCall, match="needs the argument 'invoice'"):
        ruled.enter(lambda: pay("ana"))
    assert ruled.ran == []


# -- agents


async def test_concurrent_agents_cause_one_effect(url: str) -> None:
    ran: list[str] = []

    def body(order: str) -> str:
        ran.append(order)
        return "receipt"

    agents = [shop.agent(url, body) for _ in range(4)]
    results = await asyncio.gather(
        *(one.run("Refund order 17", thread=f"t{n}") for n, one in enumerate(agents))
    )
    assert [result.status for result in results] == ["done"] * 4
    assert ran == ["17"]
    store = agents[0].gate.store
    calls = [call for result in results for call in store.calls_of(result.run)]
    assert Counter(str(call.status) for call in calls) == {"done": 1, "failed": 3}
    assert verify(store).ok
    for one in agents:
        one.gate.store.close()


# -- who a key belongs to


@pytest.mark.parametrize(
    ("agent", "key"), [("bot", "bot/pay:1"), ("a/b", "a%2Fb/pay:1"), ("a%2Fb", "a%252Fb/pay:1")]
)
def test_remote_agents_have_separate_effect_keys(agent: str, key: str) -> None:
    terms, remote = Terms(effect_key="pay:{n}"), '{"body":"0123"}'
    assert key_of(agent, remote, terms, '{"n":1}') == key
    assert key_of(agent, "", terms, '{"n":1}') == "/pay:1"


def test_local_agents_share_effect_keys(case: Case) -> None:
    other = Case(case.store, agent="other")
    refund, again = refunding(case), refunding(other, on_duplicate="result")
    case.enter(lambda: refund("17"), "one")
    with pytest.raises(DuplicateEffect):  # the result of another agent is not for it
        other.enter(lambda: again("17"), "two")
    assert case.ran == ["17"]
    assert other.ran == []
