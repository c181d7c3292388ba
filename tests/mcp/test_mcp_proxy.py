"""Gating of calls through the proxy: policy, hints, decisions, unknown tools."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from fake_telegram import TOKEN, FakeTelegram
from mcp_world import ERAS, World, said, ticket_in
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from waiting import until_async

from sayso.audit.spans import ApprovalSpans
from sayso.channels.kit.courier import NoObserver
from sayso.channels.kit.service import ChannelService
from sayso.channels.telegram import TelegramChannel
from sayso.inbox import add_person
from sayso.inbox.accounts import Account, link_account, new_code
from sayso.mcp.front import NOTICE
from sayso.types import Reviewer

ALLOW_STOCK = """
[[rule]]
tool = "stock"
verdict = "allow"
effect = "read"
"""
DENY_ORDER = """
[[rule]]
tool = "order"
verdict = "deny"
description = "no orders"
"""

#: A button, what the client of the proxy is told then, and what happened.
PRESSES = [("Approve", "tea", ["order tea 1"]), ("Reject", "A person rejected this call", [])]


@pytest.mark.parametrize("era", ERAS)
async def test_approved_call_runs_as_shown(world: World, era: str) -> None:
    async with world.client(era) as client:
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else era)
        async with world.person(lambda request: request.approve()):
            result = await client.call_tool("order", {"item": "tea"})
        assert not result.is_error
        assert result.structured_content == {"ordered": "tea", "count": 1}
        assert world.effects == ["order tea 1"]
        (request,) = await world.inbox.history()
        assert request.tool == "order"
        assert request.args == {"item": "tea", "count": 1}
        assert request.agent == "mcp"


@pytest.mark.parametrize("era", ERAS)
async def test_edited_call_reports_the_edit(world: World, era: str) -> None:
    async with (
        world.client(era) as client,
        world.person(lambda request: request.edit({"item": "tea", "count": 2})),
    ):
        result = await client.call_tool("order", {"item": "tea", "count": 9})
    assert world.effects == ["order tea 2"]
    assert "A person changed the arguments" in said(result)
    assert result.structured_content["count"] == 2
    assert "A person changed the arguments" in result.structured_content[NOTICE]


async def test_rejected_call_gives_the_reason(world: World) -> None:
    async with world.client() as client, world.person(lambda request: request.reject("too dear")):
        result = await client.call_tool("order", {"item": "tea"})
    assert result.is_error
    assert "A person rejected this call" in said(result)
    assert "too dear" in said(result)
    assert world.effects == []


async def test_person_can_answer_in_place_of_the_tool(world: World) -> None:
    async with world.client() as client, world.person(lambda request: request.respond("sold out")):
        result = await client.call_tool("order", {"item": "tea"})
    assert not result.is_error
    assert said(result) == "sold out"
    assert world.effects == []


async def test_hint_is_not_a_rule(world: World) -> None:
    async with world.client(config=world.config(hold=0.3)) as client:
        result = await client.call_tool("secrets", {})
    assert "needs a person's approval" in said(result)
    assert world.effects == []


async def test_trusted_hints_let_reads_run(world: World) -> None:
    servers = {"shop": world.shop(trust_hints=True)}
    async with world.client(config=world.config(servers=servers, hold=0.3)) as client:
        assert said(await client.call_tool("secrets", {})) == "s3cret"
        held = await client.call_tool("order", {"item": "tea"})
    assert "needs a person's approval" in said(held)
    assert world.effects == ["secrets"]


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        (None, "ask"),
        (DENY_ORDER, "ask"),
        ('default = "ask"', "ask"),
        ('default = "deny"', "deny"),
        ('default = "allow"', "allow"),
        (f'default = "allow"{DENY_ORDER}', "allow"),
    ],
)
async def test_unmatched_call_follows_default_only(
    world: World, policy: str | None, verdict: str
) -> None:
    person: Any = nullcontext()
    if verdict == "ask":
        person = world.person(lambda request: request.reject("no"))
    async with world.client(policy=policy) as client, person:
        result = await client.call_tool("stock", {"item": "tea"})
    asked = "A person rejected this call" in said(result)
    denied = "The policy denies this call" in said(result)
    expected = {"ask": (True, False), "deny": (False, True), "allow": (False, False)}
    assert (asked, denied) == expected[verdict]


async def test_policy_allows_reads_and_denies(world: World) -> None:
    async with world.client(policy=ALLOW_STOCK + DENY_ORDER) as client:
        found = await client.call_tool("stock", {"item": "tea"})
        assert found.structured_content == {"item": "tea", "count": 3}
        refused = await client.call_tool("order", {"item": "tea"})
    assert refused.is_error
    assert "The policy denies this call" in said(refused)
    assert world.effects == ["stock tea"]


async def test_rejected_read_is_never_free_again(world: World) -> None:
    """A rejection beats the rule that allows the read; only a person lets it run."""
    rule = '[[rule]]\ntool = "stock"\neffect = "read"\nverdict = "{}"\n'
    refusing = world.person(lambda request: request.reject("no"))
    async with world.client(policy=rule.format("ask")) as client, refusing:
        assert "rejected this call" in said(await client.call_tool("stock", {"item": "tea"}))
    assert world.effects == []
    config = world.config(hold=0.3)
    async with world.client(config=config, policy=rule.format("allow")) as client:
        waiting = await client.call_tool("stock", {"item": "tea"})
        assert ticket_in(waiting)
        (request,) = await world.asked()
        assert [rejection.message for rejection in request.refusals] == ["no"]
    assert world.effects == []


async def test_invalid_calls_are_not_asked(world: World) -> None:
    async with world.client() as client:
        wrong = await client.call_tool("order", {"item": 3})
        unknown = await client.call_tool("borrow", {})
    assert wrong.is_error
    assert "cannot be read" in said(wrong)
    assert unknown.is_error
    assert "There is no tool 'borrow'" in said(unknown)
    assert len(await world.inbox.pending()) == 0


@pytest.mark.long
async def test_two_servers_share_one_endpoint_under_prefixes(world: World) -> None:
    other = world.folder / "other"
    other.mkdir()
    servers = {"shop": world.stdio_shop(trust_hints=True), "depot": world.shop(folder=other)}
    async with world.client(config=world.config(servers=servers)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"shop__order", "depot__order", "sayso_wait"} <= names
        await client.call_tool("shop__stock", {"item": "tea"})
        async with world.person(lambda request: request.approve()):
            await client.call_tool("depot__order", {"item": "ink"})
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert prompts == {"shop__greet", "depot__greet"}
    assert world.effects == ["stock tea"]
    assert (other / "effects").read_text() == "order ink 1\n"


async def test_gated_tools_list_no_output_schema(world: World) -> None:
    async with world.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["order"].output_schema is None
    assert tools["stock"].annotations.read_only_hint is True
    assert tools["order"].input_schema["required"] == ["item"]


async def test_error_of_the_tool_is_passed_on(world: World) -> None:
    async with world.client() as client, world.person(lambda request: request.approve()):
        result = await client.call_tool("fail", {})
    assert result.is_error
    assert "out of flour" in said(result)


async def test_record_option_controls_free_reads(world: World) -> None:
    for record, runs in (("asked", 0), ("all", 2)):
        servers = {"shop": world.shop(trust_hints=True, record=record)}
        async with world.client(config=world.config(servers=servers)) as client:
            for item in ("tea", "ink"):
                await client.call_tool("stock", {"item": item})
        store = world.inbox.store
        stored = [run for _, run in store.runs(agent="mcp") if run.id.startswith("run_")]
        assert len(stored) == runs
    assert len(world.effects) == 4


@pytest.mark.parametrize(("label", "words", "effects"), PRESSES)
async def test_telegram_decides_a_waiting_call(
    world: World, label: str, words: str, effects: list[str]
) -> None:
    """The call waits in the proxy, a server sends the message, and its button lets it go on."""
    store = world.inbox.store
    add_person(store, "ana", by="admin")
    link_account(store, Account("telegram", "", "77"), new_code(store, Reviewer("ana"), "telegram"))
    fake = FakeTelegram()
    channel = TelegramChannel(TOKEN, api=fake.url, spacing=0)
    service = ChannelService(world.inbox, [channel], "https://sayso.example.com", NoObserver())
    await service.begin()
    running = asyncio.create_task(service.run())
    rule = '[[rule]]\ntool = "order"\nrisk = "low"\nreviewers = "ana"\n'
    try:
        async with world.client(policy=rule) as client:
            waiting = asyncio.create_task(client.call_tool("order", {"item": "tea"}))
            await until_async(lambda: fake.shown(77))
            assert "item:  tea" in fake.shown(77)[-1]["text"]
            assert world.effects == []
            fake.press(77, label)
            result = await waiting
        assert words in said(result)
        assert world.effects == effects
    finally:
        service.stop()
        await running
        fake.close()


async def test_call_of_proxy_has_an_approval_span(world: World) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with ApprovalSpans(world.inbox.store, provider.get_tracer("test")):
        async with world.client() as client:
            async with world.person(lambda request: request.approve()):
                await client.call_tool("order", {"item": "tea"})
            await until_async(lambda: exporter.get_finished_spans())
    (span,) = exporter.get_finished_spans()
    assert span.name == "approval order"
    steps = [event.name.removeprefix("sayso.") for event in span.events]
    assert steps == ["asked", "decided", "started", "recorded"]
