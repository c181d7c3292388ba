"""A guarded Claude behaves like the bare one where no decision is needed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sayso

pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]" (365 MB)')

from claude_agent_sdk import (
    AssistantMessage,
    HookMatcher,
    ResultMessage,
    UserMessage,
    create_sdk_mcp_server,
    query,
)
from claude_agent_world import FakeAnthropic, in_process, options, say, use

from sayso.adapters.claude_agent import guard

NAME = "mcp__sayso__pay"
ALLOW = sayso.Policy([sayso.Rule("*", verdict="allow")])
#: The last two are not what the tool takes.
ARGS: Any = [{"to": "ana", "euros": 5}, {"to": "bob", "euros": "five"}, {"euros": 1}]


class Pair:
    """A bare Claude and a guarded one, with the same tool and the same script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: list[Any] = []
        self.gate = sayso.Gate("memory://", agent="teller", wait=0)
        script = [[use(NAME, f"toolu_{n}", **args)] for n, args in enumerate(ARGS)]
        script.append([say("Done.")])
        self.fake = FakeAnthropic(lambda replies, told: script[min(replies, len(ARGS))])

        async def pay(to: str, euros: int) -> str:
            """Pay somebody."""
            self.ran.append((to, euros))
            return f"paid {euros} to {to}"

        self.tool = in_process(pay)
        self.tool.input_schema = {
            "type": "object",
            "properties": {"to": {"type": "string"}, "euros": {"type": "integer"}},
            "required": ["to", "euros"],
        }

    async def bare(self, **more: Any) -> list[Any]:
        """Return the messages of a bare run."""
        servers = {"sayso": create_sdk_mcp_server("sayso", tools=[self.tool])}
        given = options(self.folder, self.fake, mcp_servers=servers, allowed_tools=[NAME], **more)
        return [message async for message in query(prompt="go", options=given)]

    def guarded(self, **more: Any) -> Any:
        return guard(options(self.folder, self.fake, **more), self.gate, ALLOW, tools=[self.tool])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.fake.close()
    pair.gate.close()


def plain(messages: list[Any]) -> list[Any]:
    """Return what the messages say, without the tools' results."""
    return [
        (type(message).__name__, getattr(message, "result", None))
        if not isinstance(message, AssistantMessage)
        else message.content
        for message in messages
        if isinstance(message, AssistantMessage | UserMessage | ResultMessage)
    ]


async def test_stream_and_result_equal_bare(pair: Pair) -> None:
    bare = await pair.bare()
    stream = pair.guarded().stream("go", thread="t")
    messages = [message async for message in stream]
    assert plain(messages) == plain(bare)
    assert len(plain(bare)) == 8
    assert stream.result.output == bare[-1].result == "Done."
    assert stream.result.raw is messages[-1]
    assert stream.result.raw.usage == bare[-1].usage
    assert stream.result.raw.num_turns == bare[-1].num_turns


@pytest.mark.long
async def test_arguments_are_validated_as_bare(pair: Pair) -> None:
    await pair.bare()
    bare = list(pair.ran)
    pair.ran.clear()
    await pair.guarded().run("go", thread="t")
    assert pair.ran == bare == [("ana", 5)]


@pytest.mark.long
async def test_hooks_see_the_same(pair: Pair) -> None:
    seen: list[Any] = []

    async def hook(input: Any, id: str | None, context: Any) -> Any:
        seen.append([input.get(name) for name in ("hook_event_name", "tool_name", "tool_input")])
        return {}

    names: Any = ("UserPromptSubmit", "PreToolUse", "Stop")
    hooks = {name: [HookMatcher(hooks=[hook])] for name in names}
    await pair.bare(hooks=hooks)
    bare = list(seen)
    seen.clear()
    await pair.guarded(hooks=hooks).run("go", thread="t")
    assert seen == bare
    assert len(bare) == 2 + len(ARGS)


@pytest.mark.long
async def test_paused_stream_resumes(pair: Pair) -> None:
    ask = sayso.Policy([sayso.Rule("pay")])
    guarded = guard(options(pair.folder, pair.fake), pair.gate, ask, tools=[pair.tool])
    first = guarded.stream("go", thread="t")
    assert [message async for message in first]
    (request,) = first.result.interruptions
    rest = guarded.stream_resume("t", decisions=[request.approve()])
    assert [message async for message in rest][-1].result == "Done."
    assert (rest.result.output, pair.ran) == ("Done.", [("ana", 5)])


def test_pickling_is_refused_with_a_reason(pair: Pair) -> None:
    with pytest.raises(TypeError, match="cannot be pickled, because they hold an open store"):
        pickle.dumps(pair.guarded())
