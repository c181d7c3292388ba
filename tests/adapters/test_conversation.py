"""The stored conversation is authenticated: an adapter refuses one that was changed with plain SQL.

Every adapter keeps what the user said in the same ``ConversationLog``. Whoever can write to the
database, but does not hold the row key, must not be able to put words into the model's input.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sayso.adapters.agents import LoggedAgent
from sayso.adapters.conversation import ReplayLog
from sayso.engine.commands import Finish
from sayso.errors import Conflict
from sayso.gate import Gate
from sayso.gate.scope import current_scope
from sayso.keys import Keyring, new_key, public_key, row_key
from sayso.stores.sqlite import SqliteStore
from sayso_testing.adapter_harness import LAST
from sayso_testing.adapter_steps import STORE, THREAD, ForkServer, Scenario

HARNESSES = {
    "agent_framework": "AgentFrameworkHarness",
    "dspy": "DspyHarness",
    "google_adk": "GoogleADKHarness",
    "langchain": "LangChainHarness",
    "openai_agents": "OpenAIAgentsHarness",
    "pydantic_ai": "PydanticAIHarness",
}

ATTACKS = {
    "rewritten": "UPDATE message SET body = replace(body, '\"go\"', '\"no\"') WHERE seq = 1",
    "deleted": "DELETE FROM message WHERE seq = 1",
    "moved to another run": "UPDATE message SET run = 'other' WHERE seq = 1",
    "added": "INSERT INTO message (thread, seq, run, body, mac) "
    "SELECT thread, 99, run, body, mac FROM message WHERE seq = 1",
}


@pytest.fixture(params=HARNESSES)
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scenario]:
    harness: Any = getattr(
        importlib.import_module(f"harness_{request.param}"), HARNESSES[request.param]
    )
    no_processes: Callable[[], ForkServer] = lambda: pytest.fail("no step here needs a process")  # noqa: E731
    scenario = Scenario(harness, tmp_path, no_processes)
    yield scenario
    scenario.close()


@pytest.mark.parametrize("attack", ATTACKS)
def test_tampered_conversation_stops_the_run(scenario: Scenario, attack: str) -> None:
    scenario.run()
    scenario.approve_all()
    scenario.inbox.store.close()
    _execute(scenario, ATTACKS[attack])
    came = scenario.resume()
    assert came.status == "raised"
    assert came.error.startswith("Tampered: ")
    assert scenario.asked == 1
    assert scenario.effects() == []


def test_new_input_does_not_hide_tampering(scenario: Scenario) -> None:
    scenario.run()
    scenario.inbox.store.close()
    _execute(scenario, ATTACKS["rewritten"])
    came = scenario.run()
    assert (came.status, scenario.asked, scenario.effects()) == ("raised", 1, [])
    assert came.error.startswith("Tampered: ")


def test_log_starts_with_user_ends_with_answer(scenario: Scenario) -> None:
    scenario.run()
    scenario.approve_all()
    assert scenario.resume().output == LAST
    store = SqliteStore(scenario.folder / STORE)
    said = [json.loads(body) for _, body in store.messages(THREAD)]
    store.close()
    assert (said[0]["role"], said[0]["content"]) == ("user", "go")
    assert (said[-1]["role"], said[-1]["answer"]) == ("assistant", {"output": LAST})
    assert len({body["format"] for body in said}) == 1


class _Log(ReplayLog):
    format = "test"


async def test_first_and_last_messages_need_no_commit_of_their_own(tmp_path: Path) -> None:
    class Teller(LoggedAgent[_Log]):
        log_type = _Log

        async def begin(self, input: Any, thread: str) -> Any:
            log = await self.open_log(thread)
            await log.say(input)
            return await self.continue_turn(log)

        async def continue_turn(self, log: _Log) -> Any:
            await log.reply("", "half")
            await log.end("whole")
            return "whole"

    commits: list[str] = []
    note: Any = lambda name, when: commits.append(name) if when == "after" else None  # noqa: E731
    with closing(SqliteStore(tmp_path / STORE, boundary=note)) as store:
        teller = Teller(Gate(store, agent="teller"), None, None)
        assert (await teller.run("go", thread=THREAD)).output == "whole"
        assert (await teller.run("again", thread=THREAD)).output == "whole"
        contents = [json.loads(body).get("content", "") for _, body in store.messages(THREAD)]
        assert contents == ["go", "", "", "again", "", ""]
        assert commits == ["reopen+propose+claim", "propose", "propose+finish"] * 2


async def test_input_waits_for_who_took_the_thread_first(tmp_path: Path) -> None:
    """The other process takes it while the log is being read."""
    at_work: list[str] = []

    class Teller(LoggedAgent[_Log]):
        log_type = _Log
        first: Any = None

        async def begin(self, input: Any, thread: str) -> Any:
            log = await self.open_log(thread)
            if self.first is not None:
                first, self.first = self.first, None
                await first()
            await log.say(input)
            at_work.append(input)
            assert len(at_work) == 1
            await asyncio.sleep(0.01)
            at_work.remove(input)
            await log.end(input)
            return input

    with closing(SqliteStore(tmp_path / STORE)) as store:
        one, two = (Teller(Gate(store, agent="teller"), None, None) for _ in "ab")
        working: list[asyncio.Task[Any]] = []

        async def first() -> None:
            working.append(asyncio.create_task(one.run("one", thread=THREAD)))
            while not at_work:
                await asyncio.sleep(0)

        two.first = first
        assert (await two.run("two", thread=THREAD)).output == "two"
        assert (await working[0]).output == "one"
        log = await _read(store)
        assert log.turn == 2


async def _said(store: SqliteStore, *, replies: int = 0) -> _Log:
    log = _Log(Gate(store, agent="teller"), THREAD)
    await log.load()
    await log.say("go")
    for number in range(replies):
        await log.reply("", {"text": f"half \ud800 {number}"}, content=f"half \ud800 {number}")
    return log


async def _read(store: SqliteStore) -> _Log:
    log = _Log(Gate(store, agent="teller"), THREAD)
    await log.load()
    return log


async def test_process_without_signing_key_keeps_log(tmp_path: Path) -> None:
    whole = new_key("ed25519")
    keys = Keyring.parse(public_key(whole), rows=row_key(whole))
    with closing(SqliteStore(tmp_path / STORE, keys=keys)) as store:
        await _said(store, replies=1)
        assert (await _read(store)).turn == 1


async def test_framework_gets_lone_surrogates_back(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / STORE)) as store:
        await _said(store, replies=2)
        log = await _read(store)
        assert [log.next_reply("")["text"] for _ in "ab"] == ["half \ud800 0", "half \ud800 1"]
        assert log.next_reply("") is None
        assert json.loads(store.messages(THREAD)[1][1])["content"] == "half ? 0"


async def test_second_writer_is_refused(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / STORE)) as store:
        first, second = await _said(store), await _read(store)
        await first.reply("", "one")
        with pytest.raises(Conflict, match="read it again"):
            await second.reply("", "two")


async def test_log_ignores_messages_of_other_formats(tmp_path: Path) -> None:
    class Other(_Log):
        format = "other"

    with closing(SqliteStore(tmp_path / STORE)) as store:
        await _said(store, replies=1)
        log = Other(Gate(store, agent="teller"), THREAD)
        await log.load()
        assert (log.turn, log.replies) == (0, {})
        await log.say("and you?")
        assert (await _read(store)).turn == 1


async def test_pruned_thread_continues_numbering(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / STORE)) as store:
        log = await _said(store, replies=1)
        store.transact(Finish(thread=THREAD, run=log.run, status="done", token=0))
        store.prune(store.now() + 10**9, "ana")
        assert store.messages(THREAD) == []
        log = await _read(store)
        log.run = "teller:later"
        await log.say("again")
        await log.reply("", "here")
        assert [number for number, _ in store.messages(THREAD)] == [3, 4]


def _execute(scenario: Scenario, statement: str) -> None:
    file = sqlite3.connect(scenario.folder / STORE)
    with file:
        assert file.execute(statement).rowcount > 0, "the statement changed nothing"
    file.close()


async def test_later_input_keeps_the_requester_of_its_run(tmp_path: Path) -> None:
    """Agents inside of the run ask for the same person, who may not decide for themselves."""
    requesters: list[str] = []

    class Teller(LoggedAgent[_Log]):
        log_type = _Log

        async def begin(self, input: Any, thread: str) -> Any:
            log = await self.open_log(thread)
            await log.say(input)
            scope = current_scope(self.gate.driver)
            assert scope is not None
            requesters.append(scope.requester)
            await log.end(input)
            return input

    with closing(SqliteStore(tmp_path / STORE)) as store:
        teller = Teller(Gate(store, agent="teller"), None, None)
        await teller.run("go", thread=THREAD, requester="ana")
        await teller.run("go on", thread=THREAD)
    assert requesters == ["ana", "ana"]
