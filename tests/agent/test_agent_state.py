"""A run's state in the caller's hands: small, signed, bound to its store, and usable once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import World, asked

import sayso
from sayso.gate.run_result import VERSION
from sayso.keys import HmacKey, Keyring
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scripted_model import ScriptedModel, call, calls, say

PAY = call("pay", {"amount": 3, "to": None})
TWO = calls(PAY, call("pay", {"amount": 4, "to": None}))


def a_key(letter: bytes) -> Keyring:
    return Keyring((HmacKey.from_secret(letter * 32),))


@pytest.fixture(params=["memory", "sqlite"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Return a world whose store has a fixed key."""
    path, keys = tmp_path / "a.db", a_key(b"x")
    store: Store = MemoryStore(keys=keys) if request.param == "memory" else SqliteStore(path)
    yield World(store)
    store.close()


async def paused(world: World, *steps: object) -> sayso.RunState:
    agent = world.agent(*(steps or (PAY,)))
    return (await agent.run("pay ana", thread="t")).state


async def test_state_survives_json(lasting: World) -> None:
    state = await paused(lasting)
    read = sayso.RunState.from_json(state.to_json())
    assert (read.run, read.thread, read.agent) == (state.run, "t", "assistant")
    (request,) = read.interruptions
    (before,) = state.interruptions
    for name in ("id", "kind", "tool", "args", "digest", "allowed", "description", "created_at"):
        assert getattr(request, name) == getattr(before, name)
    read.approve(request, by="bea")
    agent = lasting.agent(say("Done."))
    result = await agent.resume(read)
    assert (result.output, lasting.ran) == ("Done.", [("pay", (3, "ana"))])


async def test_staged_stop_survives_its_text(lasting: World) -> None:
    state = await paused(lasting, TWO)
    state.reject(state.interruptions[0], "why", stop=True, by="bea")
    read = sayso.RunState.from_json(state.to_json())
    result = await lasting.agent(say("Done.")).resume(read)
    assert (result.status, lasting.ran) == ("cancelled", [])
    first, second = [await lasting.inbox.get(request.id) for request in state.interruptions]
    assert (first.status, second.status) == ("rejected", "cancelled")
    assert first.decision is not None
    assert (first.decision.message, first.decision.stop) == ("why", True)


async def test_rejection_in_resume_stops_the_run(lasting: World) -> None:
    state = await paused(lasting, TWO)
    stop = state.interruptions[0].reject("why", stop=True)
    result = await lasting.agent(say("Done.")).resume("t", decisions=[stop], by="bea")
    assert (result.status, lasting.ran) == ("cancelled", [])


async def test_staged_decisions_survive_json(lasting: World) -> None:
    state = await paused(lasting, TWO)
    first, second = state.interruptions
    state.edit(first, {"amount": 1}, by="bea")
    state.reject(second, "too much", by="cy")
    read = sayso.RunState.from_json(state.to_json())
    agent = lasting.agent(say("Done."))
    await agent.resume(read)
    assert lasting.ran == [("pay", (1, "ana"))]
    refused = await lasting.inbox.get(second.id)
    assert refused.decision is not None
    assert (refused.decision.by, refused.decision.message) == ("cy", "too much")


async def test_question_survives_json(lasting: World) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        return str(await ctx.ask(sayso.Question("Size?", options=("S", "L"))))

    agent = lasting.agent(call("order"), say("Done."), tools=[order])
    state = (await agent.run("go", thread="t")).state
    read = sayso.RunState.from_json(state.to_json())
    assert read.interruptions[0].question == state.interruptions[0].question
    read.respond(read.interruptions[0].id, "L")
    assert (await agent.resume(read)).status == "done"


async def test_state_can_be_exported_again_after_a_decision(lasting: World) -> None:
    state = await paused(lasting, TWO)
    text = state.to_json()
    with pytest.raises(sayso.KeyMissing):
        sayso.RunState.from_json(text).to_json()
    read = sayso.RunState.from_json(text, store=lasting.store)
    read.approve(read.interruptions[0], by="bea")
    again = sayso.RunState.from_json(read.to_json())
    assert [staged.by for staged in again.staged] == ["bea"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bea", "eve", "the signature of this state is wrong"),
        ("reject", "respond", "not a run state"),
        ("reject", "decide", "not a run state"),
    ],
)
async def test_tampered_state_is_refused(lasting: World, old: str, new: str, message: str) -> None:
    state = await paused(lasting)
    state.reject(state.interruptions[0], "no", by="bea")
    text = state.to_json()
    forged = text.replace(f'"{old}', f'"{new}').replace(f'\\"{old}\\"', f'\\"{new}\\"')
    assert forged != text
    agent = lasting.agent(say("Never."))
    with pytest.raises(sayso.Tampered, match=message):
        await agent.resume(sayso.RunState.from_json(forged))
    with pytest.raises(sayso.Tampered, match=message):
        sayso.RunState.from_json(forged, store=lasting.store)
    assert (lasting.ran, asked(agent)) == ([], [])
    assert (await lasting.inbox.pending()).items[0].status == "pending"


async def test_another_key_does_not_sign_for_this_store(lasting: World) -> None:
    state = await paused(lasting)
    outer = json.loads(state.to_json())
    outer["signature"] = a_key(b"y").sign(outer["state"].encode())
    with pytest.raises(sayso.UnknownKey, match="SAYSO_KEY"):
        await lasting.agent().resume(sayso.RunState.from_json(json.dumps(outer)))


async def test_another_store_refuses_the_state(lasting: World, tmp_path: Path) -> None:
    state = await paused(lasting)
    text = state.to_json()
    other = SqliteStore(tmp_path / "other.db")
    agent = World(other).agent(say("Never."))
    for given in (state, sayso.RunState.from_json(text)):
        with pytest.raises(sayso.Conflict, match="another store"):
            await agent.resume(given)
    other.close()


async def test_another_agent_refuses_the_state(lasting: World) -> None:
    state = await paused(lasting)
    with pytest.raises(sayso.Conflict, match="belongs to agent 'assistant', not to 'renamed'"):
        await lasting.agent(name="renamed").resume(state)


async def test_store_in_memory_exports_nothing_without_a_key() -> None:
    state = await paused(World(MemoryStore()))
    with pytest.raises(sayso.KeyMissing, match="SAYSO_KEY"):
        state.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"state": 7, "signature": "x"}',
        '{"state": "{}", "signature": "x"}',
        '{"state": "secret-payload", "signature": "x"}',
        '{"state": "{}", "signature": 7}',
    ],
)
def test_invalid_state_text_is_not_quoted(text: str) -> None:
    with pytest.raises(sayso.Tampered) as refused:
        sayso.RunState.from_json(text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("version", [0, VERSION + 1, "1", None, True])
async def test_state_of_another_version_is_refused(lasting: World, version: object) -> None:
    state = await paused(lasting)
    outer = json.loads(state.to_json())
    body = json.loads(outer["state"]) | {"version": version}
    if version is None:
        del body["version"]
    outer["state"] = json.dumps(body)
    with pytest.raises((sayso.Conflict, sayso.Tampered)):
        sayso.RunState.from_json(json.dumps(outer))


async def test_released_state_version_can_be_read() -> None:
    """Later versions still read a state of version 1."""
    frozen = Path(__file__).with_name("state_v1.json").read_text("utf-8")
    state = sayso.RunState.from_json(frozen)
    assert (state.run, state.thread, state.agent) == ("run_1", "t", "assistant")
    (request,) = state.interruptions
    assert (request.tool, request.args) == ("pay", {"amount": 3, "to": "ana"})
    (staged,) = state.staged
    assert (staged.by, staged.decision) == ("bea", request.reject("too much"))


async def test_staged_edit_survives_export(lasting: World) -> None:
    state = await paused(lasting)
    state.edit(state.interruptions[0], {"amount": 4})
    again = sayso.RunState.from_json(state.to_json())
    assert again.staged == state.staged
    with pytest.raises(sayso.InvalidDecision, match="no argument 'iban'"):
        state.edit(state.interruptions[0], unset=["iban"])


async def test_state_holds_no_conversation_and_no_secrets(lasting: World) -> None:
    agent = lasting.agent(PAY, settings={"api_key": "sk-secret"}, instructions="Be kind.")
    state = (await agent.run("a long story " * 100, thread="t", deps={"k": "sk-secret"})).state
    text = state.to_json()
    assert "sk-secret" not in text
    assert len(text) < 1500


async def test_changed_copy_does_not_change_request(lasting: World) -> None:
    state = await paused(lasting)
    state.interruptions[0].args["amount"] = 1_000_000  # type: ignore[index]
    state.approve(state.interruptions[0])
    await lasting.agent(say("Done.")).resume(state)
    assert lasting.ran == [("pay", (3, "ana"))]


async def test_two_states_of_one_run_share_nothing(lasting: World) -> None:
    text = (await paused(lasting, TWO)).to_json()
    one, two = sayso.RunState.from_json(text), sayso.RunState.from_json(text)
    one.approve(one.interruptions[0])
    assert two.staged == []
    agent = lasting.agent(say("Done."))
    result = await agent.resume(two)
    assert (result.status, lasting.ran) == ("paused", [])
    await agent.resume(one)
    assert lasting.ran == [("pay", (3, "ana"))]
    assert sayso.RunState.from_json(text).staged == []


@pytest.mark.parametrize("how", ["in turn", "at once"])
async def test_stored_state_resumed_twice_runs_once(lasting: World, how: str) -> None:
    state = await paused(lasting, TWO)
    for request in state.interruptions:
        state.approve(request, by="bea")
    text = state.to_json()
    model = ScriptedModel([say("Done.")])
    agents = [lasting.agent(model=model) for _ in range(3)]
    resumes = [a.resume(sayso.RunState.from_json(text)) for a in agents]
    if how == "at once":
        results = await asyncio.gather(*resumes)
    else:
        results = [await one for one in resumes]
    assert [result.output for result in results] == ["Done."] * 3
    assert sorted(lasting.effects("pay")) == [(3, "ana"), (4, "ana")]
    assert len(model.requests) == 1


async def test_store_wins_over_an_old_state(lasting: World) -> None:
    text = (await paused(lasting)).to_json()
    agent = lasting.agent(say("Done."))
    (request,) = (await lasting.inbox.pending()).items
    await agent.resume("t", decisions=[request.reject("no")], by="cy")
    old = sayso.RunState.from_json(text)
    result = await agent.resume(old)
    assert (result.status, result.output, lasting.ran) == ("done", "Done.", [])
    old.approve(old.interruptions[0], by="bea")
    with pytest.raises(sayso.AlreadyDecided, match="cy decided 'reject'"):
        await agent.resume(old)
