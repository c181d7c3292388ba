"""The story on DSPy: ``dspy.ReActV2`` with a fake engine behind DSPy's own LM, guarded."""

from __future__ import annotations

import json
import re
import sqlite3
import warnings
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DSPy and what it imports warn while they are imported
    import dspy
    from dspy import lm15

from sayso.adapters.dspy import GuardedReAct, guard
from sayso.testing import AdapterHarness
from sayso.testing.adapter_harness import ModelScript

_RESULTS = re.compile(r"\[\[ ## tool_call_results ## \]\]\n(\{.*\})", re.DOTALL)


def spoken(**fields: Any) -> Any:
    """A reply in the form of DSPy's ChatAdapter."""
    said = {n: v if isinstance(v, str) else json.dumps(v) for n, v in fields.items()}
    text = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in said.items())
    return lm15.Response(
        id="r",
        model="fake",
        message=lm15.Message(
            role="assistant", parts=(lm15.TextPart(text=f"{text}\n\n[[ ## completed ## ]]"),)
        ),
        finish_reason="stop",
        usage=lm15.Usage(input_tokens=1, output_tokens=1),
    )


class Engine:
    """Follows the script; what it heard is read from the messages that DSPy made."""

    def __init__(self, script: ModelScript) -> None:
        self._script = script

    def reply(self, request: Any) -> Any:
        texts = [(m.role, p.text) for m in request.messages for p in m.parts]
        replies = sum(role == "assistant" for role, _ in texts)
        heard = []
        for role, text in texts:
            found = _RESULTS.search(text) if role == "user" else None
            for result in json.loads(found[1])["tool_call_results"] if found else ():
                value = result["value"]
                told = value if isinstance(value, str) else json.dumps(value)
                heard.append((result["call_id"], told))
        turn = self._script.reply(replies, heard)
        if isinstance(turn, str):
            made = [{"name": "submit", "args": {"answer": turn}}]
        else:
            made = [{"id": c.id, "name": c.name, "args": c.args} for c in turn]
        return spoken(next_thought="Let me see.", tool_calls={"tool_calls": made})


class SyncEngine(Engine):
    def complete(self, request: Any) -> Any:
        return self.reply(request)


class AsyncEngine(Engine):
    async def complete(self, request: Any) -> Any:
        return self.reply(request)


def fake_lm(script: Any) -> Any:
    engines = {"engine": SyncEngine(script), "async_engine": AsyncEngine(script)}
    return dspy.LM("fake/model", cache=False, **engines)


class DspyHarness(AdapterHarness):
    """DSPy keeps nothing of its own; what it remembers is in our store."""

    def agent(self) -> GuardedReAct:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ReActV2 says that it is experimental
            agent = dspy.ReActV2("question -> answer", tools=list(self.context.tools))
        return guard(agent, self.context.gate, lm=fake_lm(self.context.script))

    @classmethod
    def tamper(cls, folder: Path, old: str, new: str) -> bool:
        file = sqlite3.connect(folder.parent / "sayso.db")
        with file:
            found = file.execute(
                "UPDATE message SET body = replace(body, ?, ?) WHERE instr(body, ?)",
                (old, new, old),
            )
        file.close()
        return found.rowcount > 0


class SyncDspyHarness(DspyHarness):
    """The same with tools that are plain functions."""

    colour = "sync"
