"""Everything that Claude can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import importlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import sayso

pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]" (365 MB)')

import claude_agent_sdk
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, ClaudeSDKClient
from claude_agent_world import in_process

from sayso.adapters.claude_agent import guard
from sayso.adapters.claude_agent.guard import Turn

GLOBAL: Any = None


@pytest.fixture
def gate() -> sayso.Gate:
    return sayso.Gate("memory://", agent="coder", wait=0)


async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def test_coverage_lists_all_tools(gate: sayso.Gate) -> None:
    given = ClaudeAgentOptions(
        tools=["Bash"],
        mcp_servers={"files": {"command": "files"}},
        agents={"reader": AgentDefinition("Reads.", "Read.")},
        plugins=[{"type": "local", "path": "/plugins/some"}],
    )
    coverage = guard(given, gate, tools=[in_process(pay)]).coverage()
    assert [(one.where, one.kind, one.name, one.gated) for one in coverage] == [
        ("coder", "tool", "pay", True),
        ("coder", "built-in tool", "Bash", True),
        ("coder", "MCP server", "files", True),
        ("coder", "plugin", "/plugins/some", True),
        ("coder", "agent", "reader", True),
    ]
    assert "the gate runs it" in str(coverage)


class Office:
    """Builds its Claude where it is needed."""

    @functools.cached_property
    def client(self) -> ClaudeSDKClient:
        return ClaudeSDKClient()

    @functools.lru_cache  # noqa: B019
    def hire(self) -> ClaudeSDKClient:
        return ClaudeSDKClient()

    @classmethod
    async def ask(cls, task: str) -> None:
        await cls().client.connect(task)


async def by_query() -> None:
    async for _ in claude_agent_sdk.query(prompt="pay"):
        pass


async def by_imported_query() -> None:
    from claude_agent_sdk import query as ask

    await anext(aiter(ask(prompt="pay")))


async def by_query_with_transport() -> None:
    transport: Any = object()
    await anext(aiter(claude_agent_sdk.query(prompt="pay", transport=transport)))


async def by_client() -> None:
    async with ClaudeSDKClient() as client:
        await client.query("pay")


async def by_client_that_is_connected() -> None:
    await GLOBAL.query("pay")


async def by_own_subclass() -> None:
    class Own(ClaudeSDKClient):
        pass

    await Own().connect()


async def by_copied_client() -> None:
    await copy.copy(ClaudeSDKClient()).connect()


async def by_unbound_method() -> None:
    await ClaudeSDKClient.connect(ClaudeSDKClient())


async def by_helper_class() -> None:
    await Office.ask("pay")


async def by_cached_factory() -> None:
    await Office().hire().connect()


async def by_name() -> None:
    await getattr(importlib.import_module("claude_agent_sdk"), "ClaudeSDK" + "Client")().connect()


async def in_task() -> None:
    await asyncio.create_task(by_client())


async def in_task_group() -> None:
    await asyncio.gather(by_client(), by_query())


async def in_os_thread() -> None:
    await asyncio.to_thread(asyncio.run, by_client())


async def in_pool() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, by_query()).result()


async def in_new_os_thread() -> None:
    errors: list[BaseException] = []

    def job() -> None:
        try:
            asyncio.run(by_client())
        except sayso.InvalidCall as error:
            errors.append(error)

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    raise errors[0]


async def in_executor_of_loop() -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, asyncio.run, by_helper_class())


async def in_empty_context() -> None:
    await asyncio.get_running_loop().create_task(by_client(), context=contextvars.Context())


SHAPES = [
    by_query,
    by_imported_query,
    by_query_with_transport,
    by_client,
    by_client_that_is_connected,
    by_own_subclass,
    by_copied_client,
    by_unbound_method,
    by_helper_class,
    by_cached_factory,
    by_name,
    in_task,
    in_task_group,
    in_os_thread,
    in_pool,
    in_new_os_thread,
    in_executor_of_loop,
    in_empty_context,
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_inner_claude_is_refused(
    gate: sayso.Gate, monkeypatch: pytest.MonkeyPatch, shape: Any, effect: str
) -> None:
    """However a tool finds it: in the body of a call that the gate runs."""
    monkeypatch.setattr(f"{__name__}.GLOBAL", ClaudeSDKClient())
    monkeypatch.setenv("PATH", "")  # nothing starts, if it is not refused
    refused: list[BaseException] = []

    async def delegate(task: str) -> str:
        """Ask another Claude."""
        try:
            await shape()
        except sayso.InvalidCall as error:
            refused.append(error)
        return "asked"

    policy = sayso.Policy([sayso.Rule("delegate", verdict="allow", effect=effect)])
    given = ClaudeAgentOptions(cli_path="/nowhere/claude")
    guarded = guard(given, gate, policy, tools=[in_process(delegate)])
    await run_call(guarded, "delegate", {"task": "pay"})
    assert len(refused) == 1
    assert "guard(options, gate)" in str(refused[0])


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bare"])
async def test_inner_claude_starts_only_outside_runs(
    gate: sayso.Gate, run_elsewhere: Any, guarded: bool
) -> None:
    """Code in a tool leaves the context of its call, and starts another Claude."""
    raised: list[type[Exception]] = []

    def start() -> None:
        client = ClaudeSDKClient(ClaudeAgentOptions(cli_path="/nowhere/claude"))
        try:
            asyncio.run(client.connect())
        except Exception as error:
            raised.append(type(error))

    async def delegate(task: str) -> str:
        """Start another Claude somewhere else."""
        await asyncio.to_thread(run_elsewhere, start)
        return "started"

    policy = sayso.Policy([sayso.Rule("*", verdict="allow")])
    agent = guard(ClaudeAgentOptions(), gate, policy, tools=[in_process(delegate)])
    if guarded:
        await run_call(agent, "delegate", {"task": "pay"})
    else:
        await delegate("pay")
    assert raised == [sayso.InvalidCall if guarded else claude_agent_sdk.CLINotFoundError]


async def run_call(guarded: Any, name: str, args: dict[str, Any]) -> None:
    """Make a call of an in-process tool in a guarded run, without Claude Code."""

    async def begin(input: Any, thread: str) -> Any:
        turn = Turn(guarded, await guarded.open_log(thread))
        assert await turn._run_own_tool("toolu_1", name, args) is not None
        return "Done."

    guarded.begin = begin
    assert (await guarded.run("go", thread="t")).status == "done"


async def test_inner_claude_may_be_ungated(gate: sayso.Gate) -> None:
    raised: list[BaseException] = []

    async def delegate(task: str) -> str:
        """Ask another Claude."""
        try:
            await ClaudeSDKClient(ClaudeAgentOptions(cli_path="/nowhere/claude")).connect()
        except claude_agent_sdk.CLINotFoundError as error:
            raised.append(error)
        return "asked"

    policy = sayso.Policy([sayso.Rule("*", verdict="allow")])
    tools = [in_process(delegate)]
    named = guard(ClaudeAgentOptions(), gate, policy, tools=tools, ungated=["ClaudeSDKClient"])
    await run_call(named, "delegate", {"task": "pay"})
    assert len(raised) == 1


async def test_unguarded_claude_is_not_touched(gate: sayso.Gate) -> None:
    guard(ClaudeAgentOptions(), gate)
    with pytest.raises(claude_agent_sdk.CLINotFoundError):
        await ClaudeSDKClient(ClaudeAgentOptions(cli_path="/nowhere/claude")).connect()


def test_gated_name_cannot_be_ungated(gate: sayso.Gate) -> None:
    with pytest.raises(sayso.InvalidCall, match=r"ungated names 'Bash', but its calls go through"):
        guard(ClaudeAgentOptions(tools=["Bash"]), gate, ungated=["Bash"])


def test_original_options_are_not_changed(gate: sayso.Gate) -> None:
    given = ClaudeAgentOptions(tools=["Bash"], env={"A": "b"}, hooks={"Stop": []})
    before = copy.copy(given), dict(given.env), dict(given.hooks or {})
    guarded = guard(given, gate, tools=[in_process(pay)])
    assert (given, given.env, given.hooks) == before
    # And nothing can be added to them that guard() has not seen.
    given.can_use_tool = print  # type: ignore[assignment]
    given.env["CLAUDE_CODE_SIMPLE"] = "1"
    given.extra_args["bare"] = None
    kept = guarded.options
    assert (kept.can_use_tool, kept.env, kept.extra_args) == (None, {"A": "b"}, {})
