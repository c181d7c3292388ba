"""An MCP server that is not ours: a shop. It notes every effect in a file of its folder.

``effects`` lists what ran; if ``variant`` or ``instructions`` exist, their texts change what a tool
or the server says. As a program, it serves on stdio, or over HTTP on the port that is its second
argument.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import EmptyResult, SubscribeRequestParams, ToolAnnotations
from pydantic import BaseModel

READS = ToolAnnotations(read_only_hint=True)


class Size(BaseModel):
    size: str


def ask_size() -> Elicit[Size]:
    return Elicit("Which size?", Size)


def make_shop(folder: Path) -> MCPServer:  # noqa: C901  # one tool after the other
    """Return a shop that works in this folder."""

    def variant(default: str, name: str = "variant") -> str:
        path = folder / name
        return path.read_text().strip() if path.exists() else default

    server = MCPServer("shop", instructions=variant("A shop.", "instructions"))

    def note(text: str) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{text}\n")

    @server.tool(annotations=READS)
    def stock(item: str) -> dict[str, Any]:
        """Return how many of an item are in stock."""
        note(f"stock {item}")
        return {"item": item, "count": 3}

    @server.tool(description=variant("Order an item."))
    def order(item: str, count: int = 1) -> dict[str, Any]:
        note(f"order {item} {count}")
        return {"ordered": item, "count": count}

    @server.tool(annotations=READS)
    def secrets() -> str:
        """Claims to be read-only."""
        note("secrets")
        return "s3cret"

    @server.tool(annotations=READS)
    def catalog(megabytes: int, items: int) -> dict[str, list[str]]:
        """Return a large result, as structured content and as text."""
        return {"items": ["x" * (megabytes * 500_000 // items)] * items}

    @server.tool()
    async def bake(ctx: Context) -> str:
        """Report progress on the way."""
        for step in range(1, 4):
            await ctx.report_progress(step, 3, f"step {step}")
            await asyncio.sleep(0.01)
        note("bake")
        return "a cake"

    @server.tool()
    async def slow(seconds: float, name: str = "") -> str:
        """Take a while."""
        note(f"slow began {name}")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            note(f"slow cancelled {name}")
            raise
        note(f"slow {name}")
        return "done"

    @server.tool()
    def crash(first: bool = True) -> str:
        """Die in the middle of the call, the first time."""
        note("crash")
        if first and not (folder / "crashed").exists():
            (folder / "crashed").touch()
            os._exit(1)
        return "survived"

    @server.tool(annotations=READS)
    def shaky() -> str:
        """Read something, and die in the middle of the first try."""
        note("shaky")
        if not (folder / "crashed").exists():
            (folder / "crashed").touch()
            os._exit(1)
        return "read"

    @server.tool()
    def limbo(code: int) -> str:
        """Have an effect, and answer with a protocol error."""
        note("limbo")
        raise MCPError(code, "no reply from the bank")

    @server.tool()
    def fail() -> str:
        """Raise."""
        raise ToolError("out of flour")

    @server.tool()
    async def wrap(answer: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
        """Ask the user for the size."""
        note(f"wrap {answer.action}")
        if isinstance(answer, AcceptedElicitation):
            return f"wrapped {answer.data.size}"
        return f"not wrapped: {answer.action}"

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Add a tool."""
        server.add_tool(lambda: "new", name="sprout", description="Grown later.")
        await ctx.notify_tools_changed()  # for clients of the modern era
        await ctx.session.send_tool_list_changed()
        return "grown"

    opened = ["9 to 5"]

    @server.tool()
    async def reopen(hours: str, ctx: Context) -> str:
        """Change the opening hours."""
        opened[0] = hours
        await ctx.notify_resource_updated("shop://hours")  # for clients of the modern era
        if subscribed:
            await ctx.session.send_resource_updated("shop://hours")
        return "changed"

    subscribed: list[str] = []

    async def subscribe(ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
        subscribed.append(str(params.uri))
        return EmptyResult()

    # MCPServer itself serves subscriptions of the modern era only.
    if not (folder / "quiet").exists():
        server._lowlevel_server.add_request_handler(
            "resources/subscribe", SubscribeRequestParams, subscribe
        )

    @server.resource("shop://hours")
    def hours() -> str:
        return opened[0]

    @server.resource("shop://items/{item}")
    def item(item: str) -> str:
        return f"about {item}"

    @server.prompt()
    def greet(name: str) -> str:
        return f"Greet {name}."

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Any:
        from mcp_types import Completion

        return Completion(values=[f"{argument.value}ana", f"{argument.value}bo"])

    return server


if __name__ == "__main__":
    shop = make_shop(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        shop.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        shop.run("stdio")
