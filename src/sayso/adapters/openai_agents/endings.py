"""A tool's result may be the agent's last word (``tool_use_behavior``); a refusal never is: the
model is told of it, and says what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents import FunctionToolResult, RunContextWrapper, StopAtTools, ToolsToFinalOutputResult

from sayso.adapters.openai_agents.drive import the_drive
from sayso.rows import CallStatus
from sayso.twin import look

_REFUSED = (
    CallStatus.REJECTED,
    CallStatus.EXPIRED,
    CallStatus.CANCELLED,
    CallStatus.SUPERSEDED,
)


def unless_refused(behavior: Any) -> Any:
    """The same behaviour, where it is one of the SDK's own; one's own code decides for itself."""
    stops = behavior == "stop_on_first_tool" or isinstance(behavior, dict)
    return UnlessRefused(behavior) if stops else behavior


@dataclass(frozen=True)
class UnlessRefused:
    """Ends with the first result, or with that of these tools, if the call was not refused."""

    behavior: str | StopAtTools

    async def __call__(
        self, context: RunContextWrapper[Any], results: Sequence[FunctionToolResult]
    ) -> ToolsToFinalOutputResult:
        last = self._last(results)
        if last is None or await self._refused(last):
            return ToolsToFinalOutputResult(is_final_output=False, final_output=None)
        return ToolsToFinalOutputResult(is_final_output=True, final_output=last.output)

    def _last(self, results: Sequence[FunctionToolResult]) -> FunctionToolResult | None:
        if not isinstance(self.behavior, dict):
            return results[0]
        names = self.behavior.get("stop_at_tool_names", [])
        named = [r for r in results if r.tool.name in names or r.tool.qualified_name in names]
        return named[0] if named else None

    async def _refused(self, result: FunctionToolResult) -> bool:
        raw: Any = None if result.run_item is None else result.run_item.raw_item
        id = raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
        drive = the_drive(result.tool.name)
        row = await look(drive.calls.store, drive.row, f"{drive.path}{id}")
        return row is not None and row.status in _REFUSED
