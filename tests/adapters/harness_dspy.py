"""The story on DSPy: ``dspy.ReActV2`` with a scripted model, guarded."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DSPy and what it imports warn while they are imported
    import dspy
    from dspy.utils import DummyLM

from sayso.adapters.dspy import GuardedReAct, guard
from sayso.testing import AdapterHarness
from sayso_testing.adapter_harness import ModelScript

_RESULTS = re.compile(r"\[\[ ## tool_call_results ## \]\]\n(\{.*\})", re.DOTALL)

#: The role and the text of a message.
Said = tuple[str, str]


class FakeLM(DummyLM):  # type: ignore[misc]
    """DSPy's own model for tests, with replies that depend on all messages of the request.

    Other ways to write a model differ between the versions of DSPy that are tested.
    """

    def __init__(self, reply: Callable[[Sequence[Said]], Mapping[str, Any]]) -> None:
        super().__init__([], follow_examples=True)
        self._reply = reply

    def _use_example(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return a reply in the form of DSPy's ChatAdapter."""
        fields = self._reply([(m["role"], _text(m["content"])) for m in messages])
        said = {n: v if isinstance(v, str) else json.dumps(v) for n, v in fields.items()}
        text = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in said.items())
        return f"{text}\n\n[[ ## completed ## ]]"


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def fake_lm(script: ModelScript) -> FakeLM:
    """Return a model that follows the script. The results it got are read from DSPy's messages."""

    def reply(messages: Sequence[Said]) -> dict[str, Any]:
        heard = []
        for role, text in messages:
            found = _RESULTS.search(text) if role == "user" else None
            for result in json.loads(found[1])["tool_call_results"] if found else ():
                value = result["value"]
                told = value if isinstance(value, str) else json.dumps(value)
                heard.append((result["call_id"], told))
        turn = script.reply(sum(role == "assistant" for role, _ in messages), heard)
        if isinstance(turn, str):
            made = [{"name": "submit", "args": {"answer": turn}}]
        else:
            made = [{"id": c.id, "name": c.name, "args": c.args} for c in turn]
        return {"next_thought": "Let me see.", "tool_calls": {"tool_calls": made}}

    return FakeLM(reply)


class DspyHarness(AdapterHarness):
    """DSPy saves no state of its own; the conversation is in our store."""

    def agent(self) -> GuardedReAct:
        agent = _react(self.context.tools)
        return guard(agent, self.context.gate, lm=fake_lm(self.context.script))

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> Any:
        clerk = _react(tools)
        clerk.set_lm(fake_lm(script))
        return clerk

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        return await clerk.acall(question=task)


def _react(tools: Sequence[Callable[..., Any]]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ReActV2 says that it is experimental
        return dspy.ReActV2("question -> answer", tools=list(tools))


class SyncDspyHarness(DspyHarness):
    """The same with tools that are plain functions."""

    colour = "sync"

    def run_clerk_sync(self, clerk: Any, task: str) -> Any:
        return clerk(question=task)
