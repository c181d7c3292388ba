"""The story on the adapter of docs/writing-an-adapter.md, complete or with one fault."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from loop_faults import FAULTS

import sayso.adapters  # noqa: F401  # loaded before agents are built, as by any adapter's import
from sayso.testing import AdapterHarness
from sayso_testing.adapter_harness import ModelScript

PAGE = Path(__file__).parents[2] / "docs" / "writing-an-adapter.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def adapter_source() -> str:
    """Return the code of the page's second adapter, without its use."""
    page = PAGE.read_text("utf-8")
    imports = _BLOCK.findall(page)[0].split("class ")[0]
    section = page[page.index("## A whole adapter") : page.index("It is used like")]
    return "\n".join([imports, *_BLOCK.findall(section)])


@functools.cache
def adapter(fault: str) -> Mapping[str, Any]:
    """Return the names of the adapter with a fault in it; "" for none."""
    source = adapter_source()
    if fault:
        whole, faulty = FAULTS[fault].change
        assert source.count(whole) == 1, f"{fault}: the page has changed"
        source = source.replace(whole, faulty)
    names: dict[str, Any] = {"__name__": f"loop {fault}".strip()}
    exec(compile(source, str(PAGE), "exec"), names)
    return names


class LoopHarness(AdapterHarness):
    fault: ClassVar[str] = ""

    def agent(self) -> Any:
        context = self.context
        loop = self.build_clerk(context.tools, context.script)
        return adapter(self.fault)["guard"](loop, context.gate)

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> Any:
        async def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
            replies = sum(message["role"] == "assistant" for message in messages)
            results = [message for message in messages if message["role"] == "tool"]
            heard = [(r["id"], str(r["content"]), r.get("failed", False)) for r in results]
            turn = script.reply(replies, heard)
            if isinstance(turn, str):
                return {"content": turn, "calls": []}
            calls = [{"id": made.id, "name": made.name, "args": made.args} for made in turn]
            return {"content": "", "calls": calls}

        return adapter(self.fault)["Loop"](model, {tool.__name__: tool for tool in tools})

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        return await clerk.run([{"role": "user", "content": task}])


#: The harness of each faulty adapter, which processes find by its name in this module.
FAULTY: dict[str, type[LoopHarness]] = {}
for _number, _fault in enumerate(FAULTS):
    _name = f"FaultyLoopHarness{_number}"
    FAULTY[_fault] = type(_name, (LoopHarness,), {"fault": _fault, "__module__": __name__})
    globals()[_name] = FAULTY[_fault]
