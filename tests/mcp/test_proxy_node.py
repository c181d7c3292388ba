"""The proxy between programs that are not ours: the TypeScript client, and the npm servers."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_world import World, said, ticket_in
from test_mcp_front import listening, token
from waiting import until_async

from sayso.mcp import calls as mcp_calls

pytestmark = pytest.mark.long

NODE = Path(__file__).parent / "node"
SAYSO = Path(sys.executable).with_name("sayso")


def installed() -> str | None:
    """Install the packages, and return why they cannot be used, if so."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node is not installed"
    with (NODE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may need them
        if (NODE / "node_modules" / ".package-lock.json").exists():
            return None
        command = ["npm", "ci", "--no-audit", "--no-fund", "--silent"]
        ran = subprocess.run(command, cwd=NODE, capture_output=True, text=True)
        return None if ran.returncode == 0 else f"npm ci failed: {ran.stderr[-300:]}"


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    missing = installed()
    if missing is not None:
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)


def server(name: str, *args: str, **settings: Any) -> dict[str, Any]:
    path = NODE / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js"
    return {"command": "node", "args": [str(path), *args], "sayso": settings}


class TypeScript:
    """A TypeScript client in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        read = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert read, "the client ended"
        found: dict[str, Any] = json.loads(read)
        return found

    async def __call__(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        answer = await self.line()
        return answer.get("result", answer)

    async def call(self, tool: str, args: dict[str, Any], **options: Any) -> Any:
        return await self(do="call", tool=tool, args=args, **options)


@asynccontextmanager
async def typescript(target: dict[str, Any]) -> AsyncIterator[TypeScript]:
    process = await asyncio.create_subprocess_exec(
        *("node", "client.mjs", json.dumps(target)),
        cwd=NODE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        made = TypeScript(process)
        assert await made.line() == {"server": "sayso-proxy"}
        yield made
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def story(world: World, client: TypeScript, files: Path) -> None:
    """Read freely, write after approval, time out and come back, edit, reject."""
    (files / "a.txt").write_text("A")
    assert "write_file" in await client(do="tools")
    read = await client.call("read_text_file", {"path": str(files / "a.txt")})
    assert read["structuredContent"] == {"content": "A"}

    async with world.person(lambda request: request.approve()):
        args = {"path": str(files / "b.txt"), "content": "B"}
        wrote = await client.call("write_file", args, onprogress=True)
    assert "Successfully wrote" in wrote["content"][0]["text"]
    assert (files / "b.txt").read_text() == "B"

    args = {"path": str(files / "c.txt"), "content": "C"}
    lost = await client.call("write_file", args, timeout=300)
    assert lost["code"] == -32001
    (request,) = await world.asked()
    await world.inbox.edit(request, {**args, "content": "c"}, by="ana")
    kept = await client.call("write_file", args)
    assert "A person changed the arguments" in kept["content"][0]["text"]
    assert "A person changed the arguments" in kept["structuredContent"]["sayso_notice"]
    assert (files / "c.txt").read_text() == "c"

    async with world.person(lambda request: request.reject("not there")):
        args = {"path": str(files / "d.txt"), "content": "D"}
        refused = await client.call("write_file", args)
    assert refused["isError"]
    assert "not there" in refused["content"][0]["text"]
    assert not (files / "d.txt").exists()


def files_config(world: World, **ours: Any) -> tuple[dict[str, Any], Path]:
    files = world.folder / "files"
    files.mkdir()
    servers = {"fs": server("server-filesystem", str(files), trust_hints=True)}
    return world.config(servers=servers, **ours), files


async def test_typescript_client_works_on_stdio(world: World) -> None:
    config, files = files_config(world)
    args = ["proxy", "--config", str(world.write(config)), "--store", world.url]
    async with typescript({"command": str(SAYSO), "args": args}) as client:
        await story(world, client, files)


async def test_typescript_client_works_over_http(world: World) -> None:
    config, files = files_config(world)
    robot = token(world, "robot")
    with listening(world, config) as url:
        headers = {"Authorization": f"Bearer {robot}"}
        async with typescript({"url": url, "headers": headers}) as client:
            await story(world, client, files)
    assert {request.agent for request in await world.inbox.history()} == {"robot"}


async def test_progress_keeps_the_typescript_client_waiting(world: World) -> None:
    config, files = files_config(world, hold=60)
    assert mcp_calls.PROGRESS_SECONDS <= 5
    with listening(world, config, "--no-auth") as url:
        async with typescript({"url": url}) as client:
            args = {"path": str(files / "a.txt"), "content": "A"}
            limits = {"timeout": 4000, "onprogress": True}
            call = asyncio.create_task(client.call("write_file", args, **limits))
            (request,) = await world.asked()
            await asyncio.sleep(6)
            await world.inbox.approve(request, by="ana")
            assert "Successfully wrote" in (await call)["content"][0]["text"]
            assert await client(do="progress") >= 1


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_filesystem_server_works_behind_proxy(world: World, era: str) -> None:
    config, files = files_config(world)
    (files / "a.txt").write_text("A")
    async with world.client(era, config) as client:
        read = await client.call_tool("read_text_file", {"path": str(files / "a.txt")})
        assert said(read) == "A"
        outside = await client.call_tool("read_text_file", {"path": "/etc/passwd"})
        assert outside.is_error
        async with world.person(lambda request: request.approve()):
            made = await client.call_tool("create_directory", {"path": str(files / "new")})
        assert not made.is_error
        assert (files / "new").is_dir()


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_everything_server_works_behind_proxy(world: World, era: str) -> None:
    servers = {"every": server("server-everything")}
    policy = '[[rule]]\ntool = ["echo", "get-sum", "get-tiny-image"]\nverdict = "allow"\n'
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with world.client(era, world.config(servers=servers, hold=3), policy) as client:

        async def complete() -> dict[str, Any]:  # it announces its tools one by one
            found = {tool.name: tool for tool in (await client.list_tools()).tools}
            return found if "trigger-long-running-operation" in found else {}

        tools = await until_async(complete)
        assert "Echo: hi" in said(await client.call_tool("echo", {"message": "hi"}))
        image = await client.call_tool("get-tiny-image", {})
        assert any(block.type == "image" for block in image.content)
        # It calls itself read-only, and prints every environment variable.
        assert tools["get-env"].annotations.read_only_hint is True
        held = await client.call_tool("get-env", {})
        assert ticket_in(held)
        await world.inbox.reject((await world.asked())[0], by="ana")
        args = {"duration": 1, "steps": 4}
        async with world.person(lambda request: request.approve()):
            done = await client.call_tool(
                "trigger-long-running-operation", args, progress_callback=hear
            )
        assert "completed" in said(done)
        assert heard == sorted(heard)
        assert heard[-1] == 4
        assert (await client.list_resources()).resources
        assert (await client.list_prompts()).prompts


async def test_python_client_works_in_both_eras(world: World) -> None:
    from test_proxy_faults import on_stdio

    config, files = files_config(world, hold=2)
    (files / "a.txt").write_text("A")
    for era in ("legacy", "auto"):
        async with Client(on_stdio(world, config), mode=era) as client:
            assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
            read = await client.call_tool("read_text_file", {"path": str(files / "a.txt")})
            assert said(read) == "A"
