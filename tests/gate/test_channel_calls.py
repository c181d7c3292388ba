"""Where channels run: on the loop that asks, else in threads with loops of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from cases import Case
from waiting import until_async

from sayso import Agent, Gate, Paused, Request, ask_user
from sayso.testing import ScriptedModel, call, say

_QUESTION = {"question": "Which size?", "options": None, "free_text": True}


async def test_channel_runs_on_the_asking_loop(case: Case) -> None:
    answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def page(request: Request) -> None:
        await case.inbox.decide(request.id, request.respond(await answered), by="ana")

    gate = Gate(case.store, wait=None, channels=[page])
    asyncio.get_running_loop().call_later(0.05, answered.set_result, "large")
    async with gate.run("pizza"):
        assert await asyncio.wait_for(gate.ask("Which size?"), 60) == "large"


async def test_application_queue_works_as_channel(case: Case) -> None:
    asked: asyncio.Queue[Request] = asyncio.Queue()
    model = ScriptedModel([call("ask_user_question", _QUESTION), say("Done.")])
    agent = Agent("pizza", model=model, tools=[ask_user], store=case.store, channels=[asked.put])
    waiting = asyncio.create_task(asyncio.wait_for(asked.get(), 60))
    await asyncio.sleep(0)
    result = await agent.run("One pizza", thread="t")
    request = await waiting
    assert (result.status, request.thread) == ("paused", "t")


def test_sync_gate_runs_each_channel_in_a_thread(case: Case) -> None:
    heard: list[str] = []

    async def first(request: Request) -> None:
        await asyncio.sleep(0.01)
        heard.append(threading.current_thread().name)

    async def second(request: Request) -> None:
        await first(request)

    here = threading.current_thread().name
    told = Case(case.store, channels=[first, second])
    told.paused(lambda: told.paying(wait=0)("bo"))
    assert len({*heard, here}) == 3
    model = ScriptedModel([call("ask_user_question", _QUESTION)])
    agent = Agent("pizza", model=model, tools=[ask_user], store=case.store, channels=[first])
    assert agent.run_sync("One pizza", thread="t2").status == "paused"
    assert len(heard) == 3
    assert here not in heard


async def test_slow_channel_delays_no_caller(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    let_go = asyncio.Event()

    async def slow(request: Request) -> None:
        await let_go.wait()
        raise OSError("no line to the chat")

    async def quick(request: Request) -> None:
        await case.inbox.decide(request.id, request.approve(), by="ana")

    gate = Gate(case.store, wait=30, channels=[slow, quick])

    @gate.guard(needs_approval=True)
    async def pay(to: str) -> str:
        return f"paid {to}"

    began = time.monotonic()
    assert await pay("bo") == "paid bo"
    assert time.monotonic() - began < 8
    let_go.set()
    await until_async(lambda: "no line to the chat" in caplog.text)


def test_channel_cut_off_by_its_loop_is_logged(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        reached = asyncio.Event()

        async def endless(request: Request) -> None:
            reached.set()
            await asyncio.Event().wait()

        gate = Gate(case.store, wait=None, channels=[endless])
        asking = asyncio.create_task(gate.ask("Which?"))
        await reached.wait()
        asking.cancel()

    asyncio.run(main())
    assert "the event loop ended before a channel was done" in caplog.text


def test_terminal_shows_how_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sayso.gate.gate._in_terminal", lambda: True)
    for url in (f"sqlite:///{tmp_path}/sayso.db", "memory://"):
        gate = Gate(url, wait=0)
        with pytest.raises(Paused), gate.run("r"):
            gate.confirm_sync("Well?")
        gate.close()
    kept, passing = capsys.readouterr().err.splitlines()
    assert kept.endswith(f"; to decide: sayso inbox --decide --store sqlite:///{tmp_path}/sayso.db")
    assert "only this process can decide it" in passing
