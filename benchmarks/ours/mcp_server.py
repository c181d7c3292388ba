"""A small MCP server on stdio, for the reads of ``drivers/mcp_reads.py``."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

TOOL = types.Tool(
    name="look",
    description="Look something up.",
    input_schema={
        "type": "object",
        "properties": {"key": {"type": "integer"}},
        "required": ["key"],
    },
    annotations=types.ToolAnnotations(read_only_hint=True),
)


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[TOOL])


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    found = types.TextContent(type="text", text=f"found {(params.arguments or {})['key']}")
    return types.CallToolResult(content=[found])


async def main() -> None:
    server: Server[Any] = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
