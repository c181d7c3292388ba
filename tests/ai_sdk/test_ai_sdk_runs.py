"""Runs that end otherwise: broken, failed, cancelled, expired, in doubt; and calls within calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from ai_sdk_browser import Browser

import sayso
import sayso.demo
from sayso.agent.models import ModelError, ModelReply, TextDelta
from sayso.engine.renewing import Renewal
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.testing import FakeClock, ScriptedModel, call, person, say
from sayso.types import SECOND


class Breaking(ScriptedModel):
    """A model that breaks off when it is first asked for the given reply."""

    def __init__(self, script: list[Any], at: int, error: Exception, says: str = "") -> None:
        super().__init__(script)
        self.at, self.error, self.says = at, error, says
        self.heard = asyncio.Event()

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        if len(self.requests) == self.at:
            self.at = -1
            if self.says:
                yield TextDelta(self.says)
                await self.heard.wait()
            raise self.error
        async for piece in super().stream(request):
            yield piece


@sayso.tool(needs_approval=True)
def fire(target: str) -> str:
    return f"fired {target}"


async def test_failed_model_is_asked_again(store: Store) -> None:
    model = Breaking([say("Hello.")], 0, ModelError("the model is away: try again later"))
    browser = Browser(sayso.Agent("a", model=model, store=store))
    await browser.say("hello")
    assert browser.error == "the model is away: try again later"
    browser.messages.pop()
    await browser.post()  # as ``regenerate`` or a second ``sendMessage`` would
    assert browser.text == "Hello."


async def test_broken_run_continues_after_its_call(store: Store) -> None:
    script = [call("fire", {"target": "x"}), say("Done.")]
    model = Breaking(script, 1, RuntimeError("a secret of the machine"))
    browser = Browser(sayso.Agent("a", model=model, tools=[fire], store=store))
    await browser.say("go")
    await browser.decide()
    assert browser.tools[0]["output"] == "fired x"
    assert "secret" not in browser.error
    assert "Nothing is lost" in browser.error
    await browser.post()
    assert browser.text == "Done."
    assert browser.tools[0]["output"] == "fired x"


async def hearing(model: Breaking, frames: AsyncIterator[str]) -> AsyncIterator[str]:
    """The frames; the model breaks off when its words have come through."""
    async for text in frames:
        if model.says in text:
            model.heard.set()
        yield text


async def test_broken_reply_is_followed_by_complete_one(store: Store) -> None:
    script = [call("fire", {"target": "x"}), say("A whole reply.")]
    model = Breaking(script, 1, ModelError("the line broke: try again"), says="Half a ")
    browser = Browser(sayso.Agent("a", model=model, tools=[fire], store=store))
    await browser.say("go")
    browser.respond(browser.open_cards[0], True)
    await browser.apply(hearing(model, await browser.stream()))
    assert (browser.text, browser.error) == ("Half a ", "the line broke: try again")
    await browser.post()
    assert browser.text == "Half a A whole reply."
    await browser.reload()
    assert browser.text == "A whole reply."


async def test_reposted_text_continues_broken_run(store: Store) -> None:
    @sayso.tool
    def tell(text: str) -> str:
        return text

    script = [call("tell", {"text": "a"}), say("Done.")]
    model = Breaking(script, 1, ModelError("the model is away: try again later"))
    browser = Browser(sayso.Agent("a", model=model, tools=[tell], store=store))
    await browser.say("go")
    assert browser.tools[0]["output"] == "a"
    assert browser.error
    broken = browser.messages.pop()
    await browser.post()
    assert browser.last["id"] == broken["id"]
    assert browser.tools[0]["output"] == "a"
    assert browser.text == "Done."
    assert len(model.requests) == 2


async def test_failed_run_shows_its_error(store: Store) -> None:
    model = ScriptedModel([call("tell", {"text": "a"}), call("tell", {"text": "b"})])

    @sayso.tool
    def tell(text: str) -> str:
        return text

    agent = sayso.Agent("a", model=model, tools=[tell], store=store, max_turns=1)
    browser = Browser(agent)
    await browser.say("go")
    assert browser.tools[0]["output"] == "a"
    assert browser.error.startswith("no answer after 1 turn")
    assert len(browser.chunks) > 3


async def test_refusal_of_model_is_shown(store: Store) -> None:
    no = ModelReply(refusal="I will not do that.", finish="refusal")
    browser = Browser(sayso.Agent("a", model=ScriptedModel([no]), store=store))
    await browser.say("go")
    assert browser.text == "I will not do that."
    assert browser.finish == "content-filter"
    await browser.reload()
    assert browser.text == "I will not do that."


async def test_cancelled_run_converges(browser: Browser) -> None:
    await browser.say("weather in Oslo")
    await browser.agent.cancel("c1", by="ben")
    await browser.decide()
    assert browser.tools[0]["state"] == "output-denied"
    assert browser.finish == "other"
    assert not browser.posts_again


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.parametrize("looks", ["clicks", "reloads"])
async def test_expired_card_is_denied(clock: FakeClock, looks: str) -> None:
    @sayso.tool(needs_approval=True, expires_in=60)
    def soon(target: str) -> str:
        raise AssertionError("it expired")

    model = ScriptedModel([call("soon", {"target": "x"}), say("Too late.")])
    agent = sayso.Agent("a", model=model, tools=[soon], store=MemoryStore(clock=clock))
    browser = Browser(agent)
    await browser.say("go")
    clock.advance(61)
    if looks == "clicks":
        await browser.decide()
    else:
        assert await browser.resume()
    assert browser.tools[0]["state"] == "output-denied"
    assert browser.text == "Too late."
    assert not browser.posts_again


class Died(BaseException):
    """What ends a call without an end: nobody knows how far it came."""


async def test_call_in_doubt_asks_another_question(store: Store) -> None:
    ran: list[int] = []

    @sayso.tool(needs_approval=True)
    async def charge(euros: int) -> str:
        ran.append(euros)
        if len(ran) == 1:
            raise Died
        return "charged"

    model = ScriptedModel([call("charge", {"euros": 7}), say("Done.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[charge], store=store))
    await browser.say("go")
    old = browser.open_cards[0]["approval"]["id"]
    await browser.decide()
    (part,) = browser.open_cards
    assert part["approval"]["id"] == f"{old}d"
    assert "it is unknown whether it took effect" in browser.text
    assert browser.card(part)["kind"] == "in_doubt"
    # The yes from before is no yes to this.
    replay = Browser(browser.agent)
    await replay.reload()
    replay.respond(replay.open_cards[0], True)
    replay.tools[0]["approval"]["id"] = old
    await replay.post()
    assert replay.open_cards[0]["approval"]["id"] == f"{old}d"
    assert len(ran) == 1
    await browser.decide()
    assert browser.tools[0]["output"] == "charged"
    assert len(ran) == 2


async def test_running_attempt_cannot_be_approved_again(store: Store) -> None:
    @sayso.tool(needs_approval=True)
    async def charge(euros: int) -> str:
        raise Died

    model = ScriptedModel([call("charge", {"euros": 7})])
    browser = Browser(sayso.Agent("a", model=model, tools=[charge], store=store))
    await browser.say("go")
    await browser.decide()
    (part,) = browser.open_cards
    assert browser.card(part)["allowed"] == ["approve", "respond", "reject"]
    doubted = store.call(part["toolCallId"])
    assert doubted is not None
    store.renew([Renewal(doubted.run, doubted.token, 30 * SECOND, doubted.id)], 30.0)
    await browser.reload()
    assert browser.card(browser.open_cards[0])["allowed"] == ["respond", "reject"]
    assert "still runs" in browser.text
    await browser.decide()
    assert "still runs" in browser.card(browser.open_cards[0])["problem"]


async def test_question_inside_call_is_answered(store: Store) -> None:
    @sayso.tool
    async def book(ctx: sayso.Context) -> str:
        seat = await ctx.ask(sayso.Question("Which seat?", ["window", "aisle"]))
        return f"booked: {seat}"

    model = ScriptedModel([call("book", {}), say("Done.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[book], store=store))
    await browser.say("go")
    outer, asked = browser.tools
    assert outer["type"] == "tool-book"
    assert (asked["type"], asked["state"]) == ("tool-ask_user_question", "input-available")
    assert asked["input"]["question"] == "Which seat?"
    browser.output(asked, "aisle")
    await browser.post()
    outer, asked = browser.tools
    assert outer["output"] == "booked: aisle"
    assert asked["output"] == {"answer": "aisle"}
    assert browser.text == "Done."
    await browser.reload()
    assert [part["state"] for part in browser.tools] == ["output-available"] * 2


async def test_call_of_sub_agent_is_decided(store: Store) -> None:
    inner_model = ScriptedModel([call("fire", {"target": "y"}), say("It is done.")])
    inner = sayso.Agent("inner", model=inner_model, tools=[fire])
    model = ScriptedModel([call("inner", {"input": "fire y"}), say("Done.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[inner], store=store))
    await browser.say("go")
    (card,) = browser.open_cards
    assert (card["type"], card["input"]) == ("tool-fire", {"target": "y"})
    await browser.decide()
    outer, asked = browser.tools
    assert outer["output"] == "It is done."
    assert asked["output"] == "fired y"
    assert browser.text == "Done."


async def test_changed_tool_gets_a_new_card(store: Store) -> None:
    def agent(version: str, ran: list[str]) -> sayso.Agent:
        @sayso.tool(needs_approval=True, version=version)
        def push(target: str) -> str:
            ran.append(version)
            return "pushed"

        model = ScriptedModel([call("push", {"target": "x"}), say("Done.")][len(version) - 1 :])
        return sayso.Agent("a", model=model, tools=[push], store=store)

    ran: list[str] = []
    browser = Browser(agent("1", ran))
    await browser.say("go")
    browser.agent = agent("22", ran)
    await browser.decide()
    (part,) = browser.open_cards
    assert part["approval"]["id"].endswith(".r2")
    assert not browser.posts_again
    assert ran == []
    await browser.decide()
    assert ran == ["22"]
    assert browser.text == "Done."


async def test_recipe_approval_covers_first_revision_only(store: Store) -> None:
    @sayso.tool(needs_approval=True, quorum=2)
    def push(target: str) -> str:
        raise AssertionError("nobody has seen this")

    model = ScriptedModel([call("push", {"target": "x"}), say("Done.")])
    ana = person(store, "ana", role="chat")
    browser = Browser(sayso.Agent("a", model=model, tools=[push], store=store), by=ana, recipe=True)
    await browser.say("go")
    inbox = sayso.Inbox(store)
    (request,) = (await inbox.pending()).items
    ben = person(store, "ben")
    await inbox.decide(request.id, request.edit({"target": "y"}), by=ben)
    await browser.answer("Yes, confirmed.")
    assert browser.tools[0]["input"] == {"target": "y"}
    assert browser.tools[0]["state"] == "approval-requested"
    browser.tools[0].update(state="output-available", output="Yes, confirmed.")
    await browser.post()
    assert browser.tools[0]["state"] == "approval-requested"
