"""Agents die, servers restart, answers get lost: nothing is asked, run or reported twice."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forked_child import fork, succeeded
from remote_world import Lossy, People, Server, reserved, yes
from waiting import PATIENCE, until

import sayso
from sayso.client import RemoteGate

Gates = Callable[..., RemoteGate]
AGENT = Path(__file__).with_name("remote_agent_process.py")


@contextmanager
def agent(server: Server, token: str, act: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(AGENT), server.url, token, act]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def killed_while_running(server: Server, people: People, act: str = "begin") -> str:
    """An agent that claimed a call and was killed in the middle of it; gives its token."""
    token = people.token("bot")
    with agent(server, token, act) as process:
        people.decide(yes)
        assert line(process) == "running"
        process.kill()
    return token


@pytest.mark.long
def test_agent_killed_after_claim_leaves_doubt(server: Server, people: People) -> None:
    token = killed_while_running(server, people)
    doubt = until(lambda: [r for r in people.pending() if r.kind == "in_doubt"])[0]
    assert (doubt.tool, doubt.execution.attempts) == ("pay", 1)
    with agent(server, token, "ask") as process:
        assert line(process) == "in_doubt"  # it asks, and does not run it
    people.inbox.decide_sync(doubt.id, doubt.respond("paid 5"), by="ana")
    with agent(server, token, "finish") as process:
        assert line(process) == "paid 5"
    assert people.inbox.get_sync(doubt.id).execution.attempts == 1


@pytest.mark.long
def test_idempotent_call_runs_again_after_a_kill(
    serve: Callable[..., Server], people: People
) -> None:
    server = serve(policy=sayso.Policy([sayso.Rule("pay", effect="idempotent")]))
    token = killed_while_running(server, people, "idempotent")
    with agent(server, token, "idempotent") as process:
        assert line(process) == "running"  # when the claim of the dead one has lapsed
    (item,) = people.inbox.history_sync().items
    assert (item.kind, item.execution.attempts) == ("approval", 2)


def test_waiting_agent_survives_server_restart(url: str, people: People, gate_to: Gates) -> None:
    with closing(reserved()) as port:
        first = Server(url, port).start()
        gate, results = gate_to(first.url), []

        @gate.guard
        def pay(amount: int) -> str:
            return f"paid {amount}"

        waiting = threading.Thread(target=lambda: results.append(pay(5)), daemon=True)
        waiting.start()
        request = people.next()
        first.stop()
        second = Server(url, port).start()
        try:
            people.decide(yes)
            waiting.join(PATIENCE)
            assert results == ["paid 5"]
            assert people.inbox.get_sync(request.id).execution.attempts == 1
        finally:
            second.stop()


def test_agent_waits_for_late_server(url: str, people: People, gate_to: Gates) -> None:
    with closing(reserved()) as port:
        gate = gate_to(f"http://127.0.0.1:{port.getsockname()[1]}")
        answers: list[Any] = []
        asking = threading.Thread(
            target=lambda: answers.append(gate.ask_sync("Still there?")), daemon=True
        )
        asking.start()
        server = Server(url, port).start()
        try:
            people.decide(lambda request: request.respond("yes"))
            asking.join(PATIENCE)
            assert answers == ["yes"]
        finally:
            server.stop()


@pytest.mark.parametrize("lost", ["/api/requests", "/wait", "/result"])
def test_lost_answer_repeats_nothing(
    server: Server, people: People, gate_to: Gates, lost: str
) -> None:
    with closing(Lossy(server.url, lambda method, path: path.split("?")[0].endswith(lost))) as net:
        gate, ran = gate_to(net.url), []

        @gate.guard
        def pay(amount: int) -> str:
            ran.append(amount)
            return f"paid {amount}"

        people.will(yes)
        assert pay(5) == "paid 5"
        assert ran == [5]
        (item,) = people.inbox.history_sync().items
        assert (item.execution.status, item.execution.attempts) == ("done", 1)
        assert max(net.seen.values()) > 1


def test_lost_failure_report_is_repeated(server: Server, people: People, gate_to: Gates) -> None:
    with closing(Lossy(server.url, lambda method, path: path.endswith("/result"))) as net:
        gate = gate_to(net.url)

        @gate.guard
        def fail() -> None:
            raise ZeroDivisionError("by nothing")

        people.will(yes)
        with pytest.raises(ZeroDivisionError) as error:
            fail()
        assert not getattr(error.value, "__notes__", [])
        (item,) = people.inbox.history_sync().items
        assert item.execution.status == "failed"


def test_lost_doubt_report_is_repeated(server: Server, people: People, gate_to: Gates) -> None:
    with closing(Lossy(server.url, lambda method, path: path.endswith("/result"))) as net:
        gate, ran = gate_to(net.url), []

        @gate.guard(effect_key="pay")
        def pay() -> None:
            ran.append("pay")
            raise ZeroDivisionError("by nothing")

        def give_up(request: sayso.Request) -> sayso.Decision:
            reports = f"POST /api/requests/{request.id}/result"
            until(lambda: net.seen[reports] > 1)  # it was sent again
            return request.reject("gave up")

        people.will(yes, give_up)
        with pytest.raises(sayso.InDoubt, match="gave up") as error:
            pay()
        assert isinstance(error.value.__cause__, ZeroDivisionError)
        assert ran == ["pay"]
        (item,) = people.inbox.history_sync().items
        assert (item.execution.status, item.execution.attempts) == ("failed", 1)


@pytest.mark.long
def test_lost_claim_answer_leaves_doubt(server: Server, people: People, gate_to: Gates) -> None:
    with closing(Lossy(server.url, lambda method, path: path.endswith("/claim"))) as net:
        gate, ran = gate_to(net.url, lease=1), []

        @gate.guard
        def pay(amount: int) -> str:
            ran.append(amount)
            return f"paid {amount}"

        def settle(request: sayso.Request) -> sayso.Decision:
            assert request.kind == "in_doubt"
            return request.approve()  # nobody was paid: run it again

        people.will(yes, settle)
        assert pay(5) == "paid 5"
        assert ran == [5]
        (item,) = people.inbox.history_sync().items
        assert item.execution.attempts == 2


def test_long_call_keeps_its_claim(server: Server, people: People, gate_to: Gates) -> None:
    gate = gate_to(server.url, lease=1.5)
    running, go_on = threading.Event(), threading.Event()

    @gate.guard
    def pay(amount: int) -> str:
        running.set()
        assert go_on.wait(PATIENCE)
        return f"paid {amount}"

    results: list[str] = []
    people.will(yes)
    paying = threading.Thread(target=lambda: results.append(pay(5)), daemon=True)
    paying.start()
    assert running.wait(PATIENCE)
    store = people.inbox.store
    (run,) = [run for _, run in store.runs()]
    claimed_until = run.ready_at or 0
    until(lambda: (now := store.run(run.id)) is not None and (now.ready_at or 0) > claimed_until)
    go_on.set()
    paying.join(PATIENCE)
    assert results == ["paid 5"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_opens_new_connections(server: Server, gate_to: Gates, people: People) -> None:
    """On a connection of the parent's, each would read the other's answers."""
    gate = gate_to(server.url, wait=0)

    def ask(run: str) -> None:
        with pytest.raises(sayso.Paused) as paused, gate.run(run):
            gate.ask_sync(f"About {run}?")
        assert paused.value.requests[0].question.text == f"About {run}?"

    names = [f"{who} {n}" for who in ("parent", "ana", "bo") for n in range(10)]
    ask("first")  # its connection stays open, and the children inherit it

    def ask_ten(who: str) -> None:
        for n in range(10):
            ask(f"{who} {n}")

    children = [fork(partial(ask_ten, who)) for who in ("ana", "bo")]
    ask_ten("parent")
    assert [succeeded(pid) for pid in children] == [True, True]
    for run in ("first", *names):
        assert len(people.inbox.pending_sync(run=f"bot/{run}").items) == 1
