"""The guardrails of a tool: after an edit they judge the arguments that will run."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from agents import (
    FunctionTool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)
from agents.tool_context import ToolContext

from sayso.adapters.openai_agents.drive import the_drive
from sayso.twin import look


def of_what_runs(tool: FunctionTool) -> list[ToolInputGuardrail[Any]] | None:
    """The tool's guardrails. The SDK shows them the arguments that the model wrote."""
    guardrails = tool.tool_input_guardrails
    return None if guardrails is None else [_of_what_runs(one) for one in guardrails]


def _of_what_runs(guardrail: ToolInputGuardrail[Any]) -> ToolInputGuardrail[Any]:
    async def judged(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        drive = the_drive(data.context.tool_name)
        key = f"{drive.path}{data.context.tool_call_id}"
        row = await look(drive.calls.store, drive.row, key)
        if row is not None and row.original is not None:
            data = replace(data, context=with_arguments(data.context, row.args))
        return await guardrail.run(data)

    return ToolInputGuardrail(judged, guardrail.get_name())


def with_arguments(context: ToolContext[Any], arguments: str) -> ToolContext[Any]:
    """The context of a call, as if the model had written these arguments."""
    changed = copy.copy(context)
    changed.tool_arguments = arguments
    return changed
