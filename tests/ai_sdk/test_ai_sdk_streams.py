"""Interrupted streams: reloads, other processes, and decisions made elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ai_sdk_browser import Browser, chunks_in
from waiting import PATIENCE, until_async

import sayso
import sayso.demo
from sayso.adapters import ai_sdk
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.testing import ScriptedModel, call, say


class Patient(ScriptedModel):
    """A model that may be told to wait before it speaks."""

    def __init__(self, script: list[Any]) -> None:
        super().__init__(script)
        self.go = asyncio.Event()
        self.go.set()

    async def reply(self, request: Any) -> Any:
        await self.go.wait()
        return await super().reply(request)


class Gated:
    """An agent whose one tool waits for the test, before and after its effect is written down."""

    def __init__(self, store: Store, *script: Any) -> None:
        self.ran: list[str] = []
        self.started, self.release = asyncio.Event(), asyncio.Event()

        @sayso.tool(needs_approval=True)
        async def fire(target: str) -> str:
            self.ran.append(target)
            self.started.set()
            await self.release.wait()
            return "fired"

        self.model = Patient([*script] or [call("fire", {"target": "x"}), say("Done.")])
        self.agent = sayso.Agent("a", model=self.model, tools=[fire], store=store)


async def read_until(frames: AsyncIterator[str], kind: str) -> list[dict[str, Any]]:
    """The chunks up to the first of this type, with what came together with it."""
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        async for text in frames:
            events = [event for event in text.split("\n\n") if event.startswith("data: {")]
            seen += [json.loads(event.removeprefix("data: ")) for event in events]
            if kind in [chunk["type"] for chunk in seen]:
                return seen
    raise AssertionError(f"no {kind} in {seen}")


async def rest(frames: AsyncIterator[str]) -> list[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE):
        return chunks_in("".join([frame async for frame in frames]))


async def approved(browser: Browser) -> AsyncIterator[str]:
    """Click yes; gives the response, unread."""
    browser.respond(browser.open_cards[0], True)
    return await browser.stream()


async def decide_elsewhere(store: Store, **how: Any) -> None:
    inbox = sayso.Inbox(store)
    (request,) = (await inbox.pending()).items
    decision = request.edit(how["edit"]) if "edit" in how else request.approve()
    await inbox.decide(request.id, decision, by="ben")


async def test_unknown_chat_has_no_stream(agent: sayso.Agent) -> None:
    assert await ai_sdk.follow(agent, "nobody-knows", by="ana") is None
    assert await ai_sdk.messages(agent, "nobody-knows", by="ana") == []


async def test_posted_call_alone_repeats_no_text(browser: Browser) -> None:
    await browser.say("What is the weather in Oslo?")
    before = browser.text
    assert before
    browser.respond(browser.open_cards[0], True)
    whole = browser.last["parts"]
    browser.last["parts"] = browser.tools
    frames = await browser.stream()
    browser.last["parts"] = whole
    told = [chunk["delta"] for chunk in await rest(frames) if chunk["type"] == "text-delta"]
    assert "".join(told).startswith("Final answer:")


async def test_paused_chat_shows_its_card_again(browser: Browser) -> None:
    await browser.say("weather in Oslo")
    before = json.dumps(browser.messages)
    assert await browser.resume()
    assert json.dumps(browser.messages) == before
    assert browser.finish == "tool-calls"


async def test_finished_answer_is_rebuilt(browser: Browser) -> None:
    await browser.say("weather in Oslo")
    stale = json.loads(json.dumps(browser.messages))
    await browser.decide()
    text = browser.text
    browser.messages = stale
    assert await browser.resume()
    assert browser.text == text
    assert browser.tools[0]["state"] == "output-available"


async def test_denied_call_is_rebuilt_as_denied(browser: Browser) -> None:
    await browser.say("do two things in Oslo")
    browser.respond(browser.open_cards[0], False)
    await browser.post()
    assert await browser.resume()
    assert [part["state"] for part in browser.tools] == ["output-denied", "approval-requested"]


async def test_page_can_be_reloaded_anytime(browser: Browser) -> None:
    async def opened_anew() -> None:
        shown = [(m["role"], m["parts"]) for m in browser.messages]
        await browser.reload()
        assert without_approvals([(m["role"], m["parts"]) for m in browser.messages]) == (
            without_approvals(shown)
        )

    await browser.say("do two things in Oslo")
    await opened_anew()
    browser.respond(browser.open_cards[1], True)
    await browser.post()
    await opened_anew()
    await browser.decide(False, "no")
    await opened_anew()
    await browser.say("ask me a question")
    await opened_anew()
    await browser.answer("oauth")
    await opened_anew()


def without_approvals(shown: Any) -> Any:
    """A rebuilt part may know more of its approval than a stream can say."""
    text = json.dumps(shown)
    parts = json.loads(text)
    for _, listed in parts:
        for part in listed:
            part.pop("approval", None)
    return parts


async def test_decided_elsewhere_with_other_arguments(
    browser: Browser, store: Store, effects: sayso.demo.Effects
) -> None:
    await browser.say("weather in Oslo")
    await decide_elsewhere(store, edit={"city": "Rome"})
    assert await browser.resume()
    assert browser.tools[0]["input"] == {"city": "Rome"}
    assert browser.card(browser.tools[0])["decision"]["by"] == "ben"
    assert [row["args"] for row in effects.all()] == [{"city": "Rome"}]


async def test_late_click_shows_decision_elsewhere(
    browser: Browser, store: Store, effects: sayso.demo.Effects
) -> None:
    await browser.say("weather in Oslo")
    await decide_elsewhere(store, edit={"city": "Rome"})
    await browser.decide(False, "too late")
    assert browser.tools[0]["input"] == {"city": "Rome"}
    assert browser.tools[0]["state"] == "output-available"
    assert len(effects.all()) == 1


async def test_message_is_stored_before_its_answer(store: Store) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedModel):
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            pieces = [piece async for piece in super().stream(request)]
            yield pieces[0]
            asked.set()
            await go.wait()
            for piece in pieces[1:]:
                yield piece

    agent = sayso.Agent("a", model=Slow([say("One two three.")]), store=store)
    first, second = Browser(agent), Browser(agent)
    posted = asyncio.create_task(first.say("hello"))
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
    await second.reload()
    assert [m["parts"][0]["text"] for m in second.messages] == ["hello"]
    frames = await ai_sdk.follow(agent, "c1", by="ana")
    assert frames is not None
    seen = await read_until(frames, "text-delta")
    assert seen[-1]["delta"] == "One"
    go.set()
    await second.resume()
    await posted
    assert second.text == first.text == "One two three."
    await rest(frames)


async def test_leaving_reader_stops_nothing(store: Store) -> None:
    gated = Gated(store)
    browser = Browser(gated.agent)
    await browser.say("go")
    frames = await approved(browser)
    reader = asyncio.create_task(rest(frames))
    async with asyncio.timeout(PATIENCE):
        await gated.started.wait()
    reader.cancel()  # as a server does when the connection is gone
    with pytest.raises(asyncio.CancelledError):
        await reader
    gated.release.set()
    assert await browser.resume()
    assert browser.tools[0]["output"] == "fired"
    assert browser.text == "Done."
    assert gated.ran == ["x"]


async def test_unread_response_still_runs(store: Store) -> None:
    gated = Gated(store)
    gated.release.set()
    browser = Browser(gated.agent)
    await browser.say("go")
    await approved(browser)
    await until_async(lambda: (run := store.last_run("c1")) and run.status == "done")
    assert gated.ran == ["x"]


async def test_idle_stream_sends_keep_alive(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayso.adapters.chat.response.KEEP_ALIVE_SECONDS", 0.01)
    gated = Gated(store)
    browser = Browser(gated.agent)
    await browser.say("go")
    frames = await approved(browser)
    async with asyncio.timeout(PATIENCE):
        async for frame in frames:
            if frame == ": keep-alive\n\n":  # it comes alone
                break
    gated.release.set()
    assert (await rest(frames))[-1] == {"type": "finish", "finishReason": "stop"}


async def test_stream_follows_another_process(tmp_path: Path) -> None:
    here, there = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db")
    try:
        asking, working = Gated(here), Gated(there, say("Done there."))
        browser = Browser(asking.agent)
        await browser.say("go")
        await decide_elsewhere(there)
        work = asyncio.create_task(working.agent.resume("c1"))
        async with asyncio.timeout(PATIENCE):
            await working.started.wait()
        frames = await ai_sdk.follow(asking.agent, "c1", by="ana")
        assert frames is not None
        seen = await read_until(frames, "data-request")
        assert seen[-1]["data"]["status"] == "approved"
        assert "tool-approval-request" not in [chunk["type"] for chunk in seen]
        working.model.go.clear()
        working.release.set()
        seen = await read_until(frames, "tool-output-available")
        assert [c["output"] for c in seen if "output" in c] == ["fired"]
        working.model.go.set()
        chunks = await rest(frames)
        await work
        assert [c["delta"] for c in chunks if "delta" in c] == ["Done there."]
        assert (asking.ran, working.ran) == ([], ["x"])
    finally:
        here.close()
        there.close()


async def test_new_text_supersedes_open_call(browser: Browser, effects: sayso.demo.Effects) -> None:
    await browser.say("weather in Oslo")
    old = json.loads(json.dumps(browser.messages))
    await browser.say("what is the time in Oslo?")
    assert browser.text == "Final answer: It is 10am in Oslo."
    assert len(browser.messages) == 4
    await browser.reload()
    states = [p["state"] for m in browser.messages for p in m["parts"] if "toolCallId" in p]
    assert states == ["output-denied", "output-available"]
    # Somebody clicks the old card, in a tab that knows of nothing.
    browser.messages = old
    await browser.decide()
    assert browser.tools[0]["state"] == "output-denied"
    assert not browser.posts_again
    assert [row["tool"] for row in effects.all()] == ["getLocalTime"]


async def test_message_posted_twice_is_answered_once(store: Store) -> None:
    model = ScriptedModel([say("One."), say("Two.")])
    agent = sayso.Agent("a", model=model, store=store)
    browsers = [Browser(agent) for _ in range(3)]
    for browser in browsers:
        part = {"type": "text", "text": "hello"}
        browser.messages = [{"id": "same", "role": "user", "parts": [part]}]
    await asyncio.gather(*(browser.post() for browser in browsers[:2]))
    await browsers[2].post()
    assert [browser.text for browser in browsers] == ["One."] * 3
    assert len({browser.last["id"] for browser in browsers}) == 1
    assert len(model.requests) == 1
    await browsers[0].say("hello")
    assert browsers[0].text == "Two."


async def test_regenerating_repeats_no_stored_call(
    browser: Browser, effects: sayso.demo.Effects
) -> None:
    await browser.say("weather in Oslo")
    await browser.decide()
    first = browser.last["id"]
    browser.messages.pop()
    await browser.post(trigger="regenerate-message")
    assert browser.last["id"] != first
    (card,) = browser.open_cards
    browser.messages.pop()
    await browser.post(trigger="regenerate-message")
    assert browser.open_cards[0]["approval"] == card["approval"]
    assert len(effects.all()) == 1


async def test_client_may_post_last_message_only(
    agent: sayso.Agent, effects: sayso.demo.Effects
) -> None:
    async def post(message: dict[str, Any]) -> list[dict[str, Any]]:
        return await rest(await ai_sdk.stream({"id": "c9", "message": message}, agent, by="ana"))

    part = {"type": "text", "text": "weather in Oslo"}
    chunks = await post({"id": "u", "role": "user", "parts": [part]})
    made = next(chunk for chunk in chunks if chunk["type"] == "tool-approval-request")
    answered = {
        "type": "tool-getWeatherInformation",
        "toolCallId": made["toolCallId"],
        "state": "approval-responded",
        "approval": {"id": made["approvalId"], "approved": True},
    }
    chunks = await post({"id": chunks[0]["messageId"], "role": "assistant", "parts": [answered]})
    assert "tool-output-available" in [chunk["type"] for chunk in chunks]
    assert len(effects.all()) == 1


async def test_client_may_name_its_messages(browser: Browser, effects: sayso.demo.Effects) -> None:
    await browser.say("weather in Oslo")
    browser.last["id"] = "mine"
    await browser.decide()
    assert browser.last["id"] == "mine"
    assert browser.tools[0]["state"] == "output-available"
    assert len(effects.all()) == 1
