"""The owner of a chat, and bodies that are refused before anything is read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from ai_sdk_browser import Browser

import sayso
import sayso.demo
from sayso import audit
from sayso.adapters import ai_sdk
from sayso.adapters.ai_sdk.response import StreamWriter
from sayso.adapters.chat.views import Guest
from sayso.engine.commands import Note
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.testing import ScriptedModel, call, say
from sayso.types import Reviewer

HELLO = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hello"}]}


async def test_chat_belongs_to_first_poster(browser: Browser, store: Store) -> None:
    await browser.say("weather in Oslo")
    assert store.threads()[0].owner == "ana"
    for other in ("ben", Reviewer("ben", role="chat")):
        with pytest.raises(sayso.NotFound):
            await ai_sdk.stream({"id": "c1", "messages": [HELLO]}, browser.agent, by=other)
        with pytest.raises(sayso.NotFound):
            await ai_sdk.follow(browser.agent, "c1", by=other)
        with pytest.raises(sayso.NotFound):
            await ai_sdk.messages(browser.agent, "c1", by=other)
    assert len(await ai_sdk.messages(browser.agent, "c1", by="ana")) == 2


async def test_stream_may_be_read_without_awaiting_it_first(store: Store) -> None:
    agent = sayso.Agent("a", model=ScriptedModel([say("Hi.")]), store=store)
    body = {"id": "c1", "messages": [HELLO]}
    text = "".join([frame async for frame in ai_sdk.stream(body, agent, by="ana")])
    assert text.startswith('data: {"type":"start"')
    assert text.endswith(ai_sdk.DONE)
    with pytest.raises(sayso.NotFound):
        await anext(aiter(ai_sdk.stream(body, agent, by="ben")))


async def test_parallel_first_posts_have_one_owner(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "a.db") for _ in range(4)]
    try:
        agents = [sayso.Agent("a", model=ScriptedModel([say("Hi.")]), store=s) for s in stores]
        browsers = [Browser(a, by=f"person {n}") for n, a in enumerate(agents)]
        said = await asyncio.gather(*(b.say("hello") for b in browsers), return_exceptions=True)
        assert [type(s) for s in said if s is not None] == [sayso.NotFound] * 3
        assert len(stores[0].messages("c1")) == 2
    finally:
        for store in stores:
            store.close()


def test_second_opening_cannot_take_chat(store: Store) -> None:
    store.transact(Note(thread="c1", type="opened", actor="ana"))
    store.transact(Note(thread="c2", type="said", actor="code"))
    for chat in ("c1", "c2"):
        with pytest.raises(sayso.Conflict, match="exists already"):
            store.transact(Note(thread=chat, type="opened", actor="ben"))
    assert [(t.id, t.owner) for t in store.threads() if t.owner] == [("c1", "ana")]


async def test_reviewers_see_chats_they_may_decide(store: Store) -> None:
    @sayso.tool(needs_approval=True, reviewers=["ben", "group:ops"])
    def push(target: str) -> str:
        return "pushed"

    model = ScriptedModel([call("push", {"target": "x"}), say("Done.")])
    agent = sayso.Agent("a", model=model, tools=[push], store=store)
    browser = Browser(agent)
    await browser.say("go")
    for sees in (Reviewer("ben"), Reviewer("eve", ("ops",)), Reviewer("root", role="admin")):
        assert len(await ai_sdk.messages(agent, "c1", by=sees)) == 2
        assert await ai_sdk.follow(agent, "c1", by=sees) is not None
        with pytest.raises(sayso.NotFound):
            await ai_sdk.stream({"id": "c1", "messages": [HELLO]}, agent, by=sees)
    for blind in (Reviewer("eve"), Reviewer("ben", role="chat")):
        with pytest.raises(sayso.NotFound):
            await ai_sdk.messages(agent, "c1", by=blind)


async def test_thread_started_by_code_is_no_chat(agent: sayso.Agent) -> None:
    await agent.run("weather in Oslo", thread="code")
    with pytest.raises(sayso.NotFound):
        await ai_sdk.messages(agent, "code", by="ana")
    await agent.run("weather in Oslo", thread="anas", requester="ana")
    assert len(await ai_sdk.messages(agent, "anas", by="ana")) == 2


async def test_agent_cannot_chat(agent: sayso.Agent) -> None:
    robot = Reviewer("robot", role="agent")
    with pytest.raises(sayso.NotAllowed):
        await ai_sdk.stream({"id": "c1", "messages": [HELLO]}, agent, by=robot)
    with pytest.raises(sayso.NotAllowed):
        await ai_sdk.follow(agent, "c1", by=robot)


async def test_record_of_a_chat_verifies(browser: Browser, store: Store) -> None:
    await browser.say("weather in Oslo")
    await browser.decide()
    report = audit.verify(store)
    assert report.ok, report
    opened, *_ = store.chain("c1")
    assert (opened.type, opened.actor) == ("opened", "ana")
    (decided,) = [e for e in store.chain("c1") if e.type == "decided"]
    assert json.loads(decided.body or "{}")["channel"] == "chat"


def body(**changes: Any) -> dict[str, Any]:
    return {"id": "c1", "messages": [HELLO], "trigger": "submit-message", **changes}


def part(**changes: Any) -> dict[str, Any]:
    tool = {"type": "tool-x", "toolCallId": "req_1", "state": "approval-responded"}
    message = {"id": "m", "role": "assistant", "parts": [{**tool, **changes}]}
    return body(messages=[message])


MALFORMED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"id": "c1", "id": "c2"}',
    b'{"id": "c1", "messages": [NaN]}',
    b'{"id": "c1", "messages": [1e999]}',
    b'{"id": "c1", "messages": [123456789012345678901234567890]}',
    b'{"id": "c1", "messages": ["\\ud800"]}',
    b"\xff",
    "nothing of the kind",
    body(id=None),
    body(id=""),
    body(id=7),
    body(id="x" * 201),
    body(id="a/b"),
    body(id="@system"),
    body(messages=[]),
    body(messages={}),
    body(messages=["hello"]),
    body(messages=[{"role": "user"}]),
    body(messages=[{**HELLO, "role": "tool"}]),
    body(messages=[{**HELLO, "role": 7}]),
    body(messages=[{**HELLO, "parts": "hello"}]),
    body(messages=[{**HELLO, "parts": ["hello"]}]),
    body(messages=[{**HELLO, "parts": [{"type": "text", "text": 7}]}]),
    body(messages=[{**HELLO, "parts": [{"type": "text", "text": "  "}]}]),
    body(messages=[{**HELLO, "parts": [{"type": "file", "url": "data:,x"}]}]),
    body(messages=[{**HELLO, "parts": [{"type": "text", "text": "\ud800"}]}]),
    body(trigger="explode"),
    body(trigger=7),
    body(messageId=7),
    part(toolCallId=7),
    part(state=7),
    part(approval="yes"),
    part(approval={"id": 7}),
    part(approval={"id": "a", "reason": 7}),
    {**part(), "edits": []},
    {**part(), "answers": "no"},
]


@pytest.mark.parametrize("bad", MALFORMED, ids=lambda bad: repr(bad)[:60])
async def test_malformed_body_is_refused(agent: sayso.Agent, bad: object) -> None:
    with pytest.raises(sayso.InvalidCall) as refused:
        await ai_sdk.stream(bad, agent, by="ana")
    assert "\n" not in str(refused.value)
    assert agent.store.threads() == []


async def test_oversized_post_is_refused(agent: sayso.Agent) -> None:
    huge = json.dumps(body(padding="x" * (4 << 20))).encode()
    with pytest.raises(sayso.InvalidCall, match="bytes of JSON"):
        await ai_sdk.stream(huge, agent, by="ana")


async def test_response_has_protocol_headers() -> None:
    assert ai_sdk.HEADERS["content-type"] == "text/event-stream"
    assert ai_sdk.HEADERS["x-vercel-ai-ui-message-stream"] == "v1"


async def test_guest_sees_no_secrets(store: Store) -> None:
    """Who reviews may look into a chat; what the inbox hides from them is hidden there, too."""

    @sayso.tool(needs_approval=True)
    def sign_in(user: str, password: str) -> dict[str, str]:
        """Sign in."""
        return {"session_id": "s3cret-session"}

    made = call("sign_in", {"user": "ana", "password": "hunter2-hunter2"})
    model = ScriptedModel([made, say("Done.")])
    agent = sayso.Agent("a", model=model, tools=[sign_in], store=store)
    browser = Browser(agent)
    await browser.say("sign in")

    async def seen(by: str | Reviewer) -> str:
        frames = await ai_sdk.follow(agent, "c1", by=by)
        assert frames is not None
        told = [frame async for frame in frames]
        return "".join(told) + json.dumps(await ai_sdk.messages(agent, "c1", by=by))

    guest = Reviewer("rita", role="reviewer")
    assert (await seen("ana")).count("hunter2-hunter2") >= 4
    assert "hunter2" not in await seen(guest)
    assert "sign_in" in await seen(guest)
    (request,) = (await sayso.Inbox(store).pending()).items
    await agent.resume("c1", decisions=[request.approve()], by=guest)
    assert "s3cret-session" in await seen("ana")
    after = await seen(guest)
    assert "s3cret" not in after
    assert "hunter2" not in after


def test_guest_sees_failure_without_secrets(store: Store) -> None:
    key = "sk-" + "b" * 40
    failed = {"type": "error", "errorText": f"the server refused {key}"}
    guest = Guest(Reviewer("rita"), store, "c1")
    (told,) = StreamWriter(recipe=False, guest=guest).finish(failed)
    assert key not in told["errorText"]
    assert list(StreamWriter(recipe=False).finish(failed)) == [failed]
