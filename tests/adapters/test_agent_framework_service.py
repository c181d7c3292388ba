"""Conversations that the service stores: the framework sends only new messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from agent_framework import Agent, BaseChatClient, ChatResponse, Content, Message
from agent_framework_world import Client, World, call
from store_world import pay_of

from sayso import Policy, Rule
from sayso.adapters.agent_framework import guard
from sayso.errors import SaysoError

POLICY = Policy([Rule("pay")])


class Service:
    """Keeps conversations by itself, and refuses a reply whose calls have no result."""

    def __init__(self) -> None:
        self.kept: list[Message] = []
        self.sent: list[list[str]] = []

    def reply(self, messages: Sequence[Message]) -> ChatResponse[Any]:
        self.sent.append([message.role for message in messages])
        self.kept += messages
        contents = [content for message in self.kept for content in message.contents]
        made = {c.call_id for c in contents if c.type == "function_call"}
        answered = {c.call_id for c in contents if c.type == "function_result"}
        assert made == answered, "the service got no result for a call"
        said: Any = ["Done."] if made else [call("pay", to="ana")]
        reply = Message("assistant", said)
        self.kept.append(reply)
        return ChatResponse(messages=[reply], conversation_id="conv-1")


class StoringClient(Client):
    STORES_BY_DEFAULT = True


def teller(world: World, service: Service) -> Any:
    agent = Agent(StoringClient(service.reply), tools=[pay_of(world)])
    return guard(agent, world.gate)


class Bare(BaseChatClient[Any]):
    """Calls no middleware at all."""

    def _inner_get_response(self, **options: Any) -> Any:
        raise NotImplementedError


def test_client_without_middleware_is_refused(world: World) -> None:
    with pytest.raises(SaysoError, match="no middleware"):
        guard(Agent(Bare(), tools=[pay_of(world)]), world.gate)


async def test_undecidable_content_ends_the_run(world: World) -> None:
    def reply(messages: Sequence[Message]) -> ChatResponse[Any]:
        consent = Content.from_oauth_consent_request(consent_link="https://example.com/consent")
        return ChatResponse(messages=[Message("assistant", [consent])])

    guarded = guard(Agent(Client(reply), tools=[pay_of(world)]), world.gate)
    with pytest.raises(SaysoError, match="oauth_consent_request"):
        await guarded.run("go", thread="t")


async def test_service_receives_only_new_messages(world: World) -> None:
    service = Service()
    assert (await teller(world, service).run("pay ana", thread="t")).status == "paused"
    await world.decide(lambda request: request.approve())
    assert (await teller(world, service).resume("t")).output == "Done."
    assert (await teller(world, service).run("thanks", thread="t")).output == "Done."
    assert service.sent == [["user"], ["tool"], ["user"]]
    assert world.ran == [("ana", 1)]


async def test_new_input_answers_open_call_first(world: World) -> None:
    service = Service()
    await teller(world, service).run("pay ana", thread="t")
    assert (await teller(world, service).run("forget it", thread="t")).output == "Done."
    assert service.sent == [["user"], ["tool", "user"]]
    assert world.ran == []
