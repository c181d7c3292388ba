"""Servers that crash, hang or never start, and a proxy that is killed or whose client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import uvicorn
from live_server import LiveServer
from mcp import Client, StdioServerParameters
from mcp_world import World, said, start_proxy, start_shop, ticket_in
from sayso_process import Process
from waiting import PATIENCE, until, until_async

from sayso.mcp import upstreams

ALLOW = '[[rule]]\ntool = "*"\nverdict = "allow"\n'
SAYSO = Path(sys.executable).with_name("sayso")


def proxy_command(world: World, config: dict[str, object]) -> list[str]:
    path = world.write(config)
    return [str(SAYSO), "proxy", "--config", str(path), "--store", world.url]


def on_stdio(world: World, config: dict[str, object]) -> StdioServerParameters:
    command, *args = proxy_command(world, config)
    return StdioServerParameters(command=command, args=args)


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.long
async def test_call_of_dying_server_is_in_doubt(world: World) -> None:
    config = world.config(servers={"shop": world.stdio_shop()}, hold=5)
    async with world.client(config=config, policy=ALLOW) as client:
        result = await client.call_tool("crash", {})
        assert "It is unknown whether crash took effect" in said(result)
        ticket = ticket_in(result)
        (request,) = await world.asked()
        assert request.kind == "in_doubt"
        # The server was started again, and the others' calls go on.
        assert said(await client.call_tool("order", {"item": "tea"}))
        assert world.effects == ["crash", "order tea 1"]
        # The same call is still that one: it does not run behind the person's back.
        assert ticket_in(await client.call_tool("crash", {})) == ticket
        await world.inbox.approve(request, by="ana")  # run it again
        result = await client.call_tool("sayso_wait", {"ticket": ticket})
        assert said(result) == "survived"
    assert world.effects == ["crash", "order tea 1", "crash"]


LOST = (types.REQUEST_TIMEOUT, types.INTERNAL_ERROR, types.PARSE_ERROR)


@pytest.mark.long
@pytest.mark.parametrize("code", LOST)
async def test_time_out_of_a_server_is_in_doubt(world: World, code: int) -> None:
    config = world.config(servers={"shop": world.stdio_shop()}, hold=5)
    async with world.client(config=config) as client:
        asking = asyncio.create_task(client.call_tool("limbo", {"code": code}))
        (request,) = await world.asked()
        await world.inbox.approve(request, by="ana")
        result = await asking
        assert "It is unknown whether limbo took effect" in said(result)
        (doubt,) = await world.asked()
        assert (doubt.id, doubt.kind) == (request.id, "in_doubt")
        assert "no reply from the bank" in str(doubt.execution.result)
        ticket = ticket_in(await client.call_tool("limbo", {"code": code}))
        await world.inbox.respond(doubt, "paid by hand", by="ana")
        settled = await client.call_tool("sayso_wait", {"ticket": ticket})
        assert "paid by hand" in said(settled)
    assert world.effects == ["limbo"]


@pytest.mark.long
@pytest.mark.parametrize("code", [*LOST, types.INVALID_PARAMS])
async def test_protocol_error_keeps_the_effect_key(world: World, code: int) -> None:
    policy = '[[rule]]\ntool = "limbo"\nverdict = "allow"\neffect_key = "limbo"\n'
    config = world.config(servers={"shop": world.stdio_shop()}, hold=5)
    async with world.client(config=config, policy=policy) as client:
        await client.call_tool("limbo", {"code": code})
        (doubt,) = await world.asked()
        assert (doubt.kind, doubt.effect_key) == ("in_doubt", "limbo")
        assert (await client.call_tool("limbo", {"code": 1})).is_error
    assert world.effects == ["limbo"]


@pytest.mark.long
async def test_refusal_of_a_server_is_a_failure(world: World) -> None:
    config = world.config(servers={"shop": world.stdio_shop()}, hold=5)
    async with (
        world.client(config=config) as client,
        world.person(lambda request: request.approve()),
    ):
        result = await client.call_tool("limbo", {"code": types.INVALID_PARAMS})
        assert (result.is_error, "no reply from the bank" in said(result)) == (True, True)
    assert (await world.inbox.pending()).items == ()


async def test_call_that_was_not_sent_frees_its_key(world: World) -> None:
    policy = '[[rule]]\ntool = "order"\nverdict = "allow"\neffect_key = "order:{item}"\n'
    config = world.config(servers={"shop": world.stdio_shop()})

    async def unsent(self: upstreams.Upstream) -> Client:
        raise upstreams.Unreachable("not connected")

    async with world.client(config=config, policy=policy) as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(upstreams.Upstream, "client", unsent)
            assert (await client.call_tool("order", {"item": "tea"})).is_error
        assert not (await client.call_tool("order", {"item": "tea"})).is_error
    assert world.effects == ["order tea 1"]


@pytest.mark.long
async def test_read_whose_server_dies_is_read_again(world: World) -> None:
    config = world.config(servers={"shop": world.stdio_shop(trust_hints=True)})
    async with world.client(config=config) as client:
        assert said(await client.call_tool("shaky", {})) == "read"
    assert world.effects == ["shaky", "shaky"]


@pytest.mark.long
async def test_gated_read_whose_server_dies_is_read_again(world: World) -> None:
    policy = '[[rule]]\ntool = "shaky"\nverdict = "ask"\neffect = "read"\n'
    config = world.config(servers={"shop": world.stdio_shop()})
    async with (
        world.client(config=config, policy=policy) as client,
        world.person(lambda request: request.approve()),
    ):
        assert said(await client.call_tool("shaky", {})) == "read"
    assert world.effects == ["shaky", "shaky"]


async def test_failing_server_does_not_stop_others(world: World) -> None:
    servers = {"shop": world.shop(), "gone": {"command": "/no/such/program"}}
    config = world.config(servers=servers)
    async with world.client(config=config, policy=ALLOW) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "shop__order" in names
        result = await client.call_tool("gone__anything", {})
        assert result.is_error
        assert "'gone' is not connected" in said(result)
        assert "'/no/such/program' was not found" in said(result)
        assert not (await client.call_tool("shop__order", {"item": "tea"})).is_error


@pytest.mark.long
async def test_restarted_http_server_is_reconnected(world: World) -> None:
    port = _free_port()
    entry = {"url": f"http://127.0.0.1:{port}/mcp", "sayso": {"protocol": "legacy"}}
    config = world.config(servers={"shop": entry})
    first = start_shop(world.folder, port)
    second: Process | None = None
    try:
        await until_async(lambda: _listens(port))
        async with world.client(config=config, policy=ALLOW) as client:
            assert not (await client.call_tool("order", {"item": "a"})).is_error
            first.kill()
            first.wait()
            second = start_shop(world.folder, port)
            await until_async(lambda: _listens(port))
            result = await client.call_tool("order", {"item": "b"})
            assert not result.is_error, said(result)
        assert world.effects == ["order a 1", "order b 1"]
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def _listens(port: int) -> bool:
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


STUBBORN = """
import signal, sys, time, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.path.insert(0, {folder!r})
threading.Thread(target=lambda: time.sleep(600)).start()
sys.argv = ["shop", {shop!r}]
from pathlib import Path
from shop_server import make_shop
make_shop(Path({shop!r})).run("stdio")
time.sleep(600)
"""


@pytest.mark.long
def test_end_of_input_ends_proxy_quickly(
    world: World,
) -> None:
    script = world.folder / "stubborn.py"
    script.write_text(STUBBORN.format(folder=str(Path(__file__).parent), shop=str(world.folder)))
    servers = {
        "shop": world.stdio_shop(),
        "stubborn": {"command": sys.executable, "args": [str(script)]},
    }
    command = proxy_command(world, world.config(servers=servers))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for line in (
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":'
            b'"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n',
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n',
            b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n',
        ):
            process.stdin.write(line)
            process.stdin.flush()
        process.stdout.readline()
        assert b'"shop__order"' in process.stdout.readline()
        process.stdin.write(
            b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"shop__order",'
            b'"arguments":{"item":"tea"}}}\n'
        )
        process.stdin.flush()
        until(lambda: len(world.inbox.pending_sync()) == 1)
        children = children_of(process.pid)
        assert len(children) == 2
        began = time.monotonic()
        process.stdin.close()
        process.wait(30)
        took = time.monotonic() - began
        assert took < 2.0, took
        assert not any(map(is_alive, children))
        assert len(world.inbox.pending_sync()) == 1  # nothing is lost
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def ends(world: World, config: dict[str, object], seconds: float) -> bool:
    """Serve a client for so long. Return whether the proxy ends when the client leaves."""

    async def run() -> None:
        async with world.client(config=config):
            await asyncio.sleep(seconds)

    done, _ = await asyncio.wait({asyncio.create_task(run())}, timeout=20)
    return bool(done)


@pytest.mark.long
async def test_proxy_ends_at_any_moment_of_a_connection(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    config = world.config()
    for step in range(25):
        assert await ends(world, config, step * 0.002), step
    assert "trying again" not in caplog.text


async def test_proxy_ends_despite_swallowed_cancellation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Swallowing(Client):
        async def __aexit__(self, *error: object) -> bool:  # type: ignore[override]
            with contextlib.suppress(BaseException):
                await super().__aexit__(*error)  # type: ignore[arg-type]
            return True

    monkeypatch.setattr(upstreams, "Client", Swallowing)
    assert await ends(world, world.config(), 0.5)


@pytest.mark.long
async def test_killed_proxy_loses_nothing(world: World) -> None:
    config = world.config(servers={"shop": world.stdio_shop()}, hold=0.5)
    async with Client(on_stdio(world, config), mode="legacy") as client:
        first = await client.call_tool("order", {"item": "tea"})
        _kill_proxies(world)
        with contextlib.suppress(Exception):
            await client.call_tool("order", {"item": "tea"})
    (request,) = await world.asked()
    await world.inbox.approve(request, by="ana")
    async with Client(on_stdio(world, config)) as client:
        await until_async(lambda: world.effects == ["order tea 1"])
        result = await client.call_tool("order", {"item": "tea"})
        assert result.structured_content == {"ordered": "tea", "count": 1}
        assert ticket_in(first)
    assert world.effects == ["order tea 1"]


def _kill_proxies(world: World) -> None:
    """Kill the proxy of this test, found by its configuration file."""
    found = subprocess.run(
        ["pgrep", "-f", f"proxy --config {world.folder}/mcp.json"], capture_output=True, text=True
    )
    pids = [int(line) for line in found.stdout.split()]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_proxy(world: World, number: int) -> None:
    config = world.config(servers={"shop": world.stdio_shop()})
    process = subprocess.Popen(
        proxy_command(world, config),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: len(children_of(process.pid)) == 1)
        children = children_of(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert b"Traceback" not in errors, errors.decode()
        until(lambda: not any(map(is_alive, children)))
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
async def test_two_proxies_run_call_once(world: World) -> None:
    config = world.config(hold=0.3)
    async with world.client(config=config) as client:
        await client.call_tool("order", {"item": "tea"})
    async with world.proxy(config) as one, world.proxy(config) as other:
        for proxy in (one, other):
            async with Client(proxy.server, cache=None) as client:
                await client.call_tool("order", {"item": "tea"})
        (request,) = await world.asked()
        await world.inbox.approve(request, by="ana")
        await until_async(lambda: world.effects)
        await asyncio.sleep(0.5)
    assert world.effects == ["order tea 1"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_listening_proxy(world: World, number: int) -> None:
    config = world.config(servers={"shop": world.stdio_shop()})
    _, _, *args = proxy_command(world, config)
    process = start_proxy(*args, "--listen", "127.0.0.1:0", "--no-auth")
    try:
        assert process.stdout is not None
        assert "Sayso proxy is at" in process.stdout.readline()
        until(lambda: len(children_of(process.pid)) == 1)
        children = children_of(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in errors, errors
        assert process.returncode == 0
        until(lambda: not any(map(is_alive, children)))
    finally:
        process.kill()
        process.wait()


async def test_refused_credentials_name_oauth(world: World) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        challenge = (b"www-authenticate", b"Bearer")
        await send({"type": "http.response.start", "status": 401, "headers": [challenge]})
        await send({"type": "http.response.body", "body": b""})

    live = LiveServer(uvicorn.Config(refuse, log_config=None, ws="none", lifespan="off"))
    live.start()
    try:
        config = world.config(servers={"shop": {"url": f"{live.url}/mcp"}})
        async with world.client(config=config) as client:
            refused = await client.call_tool("order", {"item": "tea"})
    finally:
        live.stop()
    assert refused.is_error
    assert "401 Unauthorized: put a valid token into its headers" in said(refused)
    assert "The proxy does not sign in with OAuth" in said(refused)
