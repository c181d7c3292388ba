"""The enforced recipe, with two real users: what an agent tries does not get around the proxy.

``deploy/setup-proxy`` installs everything below a folder, and the installed unit says how to start
the proxy. The attempts are also made as the proxy's own user, where they must succeed: that is the
embedded recipe, and shows that they are real.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from live_server import LiveServer
from mcp_world import SHOP
from packaging.requirements import Requirement
from shop_server import make_shop
from waiting import until

import sayso

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROXY, AGENT = "daemon", "nobody"
SHOP_TOKEN = "shop-secret"

#: What the agent runs: a real client, which makes one call and prints its result.
CLIENT = """
import asyncio, json, sys
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

async def main(url, token):
    headers = dict(Authorization="Bearer " + token)
    async with create_mcp_http_client(headers=headers) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            result = await client.call_tool("shop__order", dict(item="tea"))
            print(json.dumps(result.structured_content))

asyncio.run(main(*sys.argv[1:]))
"""


class Installed(NamedTuple):
    """A Python that other users can run, with Sayso, the MCP SDK and the shop."""

    python: str
    #: The line that makes it find them.
    packages: str
    shop: str

    def works(self) -> bool:
        check = f"{self.packages}import sayso.cli.entry, mcp; open({self.shop!r})"
        with contextlib.suppress(OSError):
            return run_as(AGENT, self.python, "-c", check).returncode == 0
        return False


class Machine(NamedTuple):
    """A machine on which the proxy was set up."""

    root: Path
    installed: Installed
    shop: str
    url: str
    pid: int
    agent_token: str

    @property
    def sayso(self) -> Path:
        return program_in(self.root)

    @property
    def client(self) -> str:
        return self.installed.packages + CLIENT

    @property
    def store(self) -> str:
        return f"sqlite:///{self.root}/var/lib/sayso/sayso.db"

    def orders(self) -> list[str]:
        path = self.root / "effects"
        return path.read_text().splitlines() if path.exists() else []


def run_as(user: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user, with an environment that says nothing."""
    account = pwd.getpwnam(user)
    return subprocess.run(
        [str(word) for word in command],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        cwd="/",
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )


def packages_in(folder: str) -> str:
    return f"import site; site.addsitedir({folder!r})\n"


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    if os.getuid() != 0:
        pytest.skip("only root can run as two users")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = (packages_in(sysconfig.get_path("purelib")), str(SHOP))
    folder = Path(tempfile.mkdtemp(prefix="sayso-public-"))
    folder.chmod(0o755)
    try:
        for copies in (False, True):  # this folder may be closed to other users
            found = copied(folder) if copies else here
            for python in (sys.executable, f"/usr/bin/{version}"):
                one = Installed(python, *found)
                if one.works():
                    yield one
                    return
        pytest.skip(f"there is no {version} that other users can run")
    finally:
        shutil.rmtree(folder)


def copied(folder: Path) -> tuple[str, str]:
    """Copy the packages and the shop to a folder."""
    packages = folder / "packages"
    shutil.copytree(Path(sayso.__file__).parent, packages / "sayso")
    for name in {"sayso", *requirements_of("sayso", {"mcp", "server"})}:
        distribution = metadata.distribution(name)
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(distribution.locate_file(file), target)
    return packages_in(str(packages)), str(shutil.copy(SHOP, folder))


def requirements_of(package: str, extras: set[str]) -> set[str]:
    """Return the names of the packages that a package needs here, directly or not."""
    wanted = [(package, extras)]
    needed: set[str] = set()
    while wanted:
        name, options = wanted.pop()
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            marker = requirement.marker
            applies = marker is None or any(
                marker.evaluate({"extra": option}) for option in options | {""}
            )
            if applies and requirement.name not in needed:
                needed.add(requirement.name)
                wanted.append((requirement.name, set(requirement.extras)))
    return needed


def program_in(root: Path) -> Path:
    return root / "opt/sayso/bin/sayso"


def unit_settings(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", path.read_text(), re.M))


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[Path, str]]:
    """A server over HTTP that answers only to its token."""
    root = Path(tempfile.mkdtemp(prefix="sayso-enforced-"))
    root.chmod(0o755)
    app = make_shop(root).streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        known = headers.get(b"authorization") == f"Bearer {SHOP_TOKEN}".encode()
        if scope["type"] == "http" and not known:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    live = LiveServer(uvicorn.Config(guarded, log_config=None, ws="none"))
    live.start()
    yield root, f"{live.url}/mcp"
    live.stop()
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def machine(shop: tuple[Path, str], installed: Installed) -> Iterator[Machine]:
    root, shop_url = shop
    python, packages, shop_program = installed
    program = program_in(root)
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{python}\n{packages}from sayso.cli.entry import main; main()\n")
    program.chmod(0o755)
    run_shop = f"{packages}import runpy; runpy.run_path({shop_program!r}, run_name='__main__')"
    config = root / "mcp.json"
    servers = {
        "shop": {"url": shop_url, "headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}},
        "local": {
            "command": python,
            "args": ["-c", run_shop, str(root)],
            "env": {"SECRET": "${SHOP_TOKEN}"},
        },
    }
    config.write_text(json.dumps({"mcpServers": servers}))
    set_up = subprocess.run(
        [DEPLOY / "setup-proxy", config, "claude", "ana"],
        env={**os.environ, "SAYSO_ROOT": str(root), "SAYSO_USER": PROXY, "SAYSO_PROGRAM": program},
        capture_output=True,
        text=True,
    )
    assert set_up.returncode == 0, set_up.stderr
    config.unlink()
    agent_token = set_up.stdout.split("agent claude: ")[1].split()[0]
    assert "person ana: sayso_" in set_up.stdout
    with (root / "etc/sayso/env").open("a") as env:
        env.write(f"SHOP_TOKEN={SHOP_TOKEN}\n")
    with started(root) as (pid, url):
        yield Machine(root, installed, shop_url, url, pid, agent_token)


@contextlib.contextmanager
def started(root: Path) -> Iterator[tuple[int, str]]:
    """Start the proxy as systemd would."""
    unit = unit_settings(root / "etc/systemd/system/sayso-proxy.service")
    assert unit["User"] == PROXY
    env = dict(line.split("=", 1) for line in Path(unit["EnvironmentFile"]).read_text().split())
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    account = pwd.getpwnam(PROXY)
    state = root / "var/lib" / unit["StateDirectory"]
    log = state / "log"
    log.touch(mode=0o600)
    os.chown(log, account.pw_uid, account.pw_gid)
    with log.open("a") as output:
        process = subprocess.Popen(
            shlex.split(unit["ExecStart"].replace(":8901", f":{port}")),
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            umask=int(unit["UMask"], 8),
            env={"PATH": os.environ["PATH"], "HOME": str(state), **env},
            cwd=state,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: "Sayso proxy is at" in log.read_text(), otherwise=log.read_text)
        yield process.pid, f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def attempts(machine: Machine, request: str, digest: str) -> dict[str, list[str | Path]]:
    """What an agent with a shell tries, as commands that succeed if the way is open."""
    state = machine.root / "var/lib/sayso"
    etc = machine.root / "etc/sayso"
    decide = [machine.sayso, "approve", request, "--digest", digest, "--store", machine.store]
    return {
        "read the store": ["cat", state / "sayso.db"],
        "read its newest commits": ["cat", state / "sayso.db-wal"],
        "read the key": ["cat", state / "sayso.db.key"],
        "read the log": ["cat", state / "log"],
        "read the configuration": ["cat", etc / "mcp.json"],
        "list the folder": ["ls", state],
        "read the environment": ["cat", f"/proc/{machine.pid}/environ"],
        "read the memory": ["head", "-c0", f"/proc/{machine.pid}/mem"],
        "list the open files": ["ls", f"/proc/{machine.pid}/fd"],
        "stop the proxy": ["sh", "-c", f"kill -0 {machine.pid}"],
        "list the requests": [machine.sayso, "inbox", "--store", machine.store],
        "approve the call": decide,
    }


@pytest.mark.long
def test_agent_cannot_get_around_the_proxy(machine: Machine) -> None:
    account = pwd.getpwnam(AGENT)
    agent = subprocess.Popen(
        [machine.installed.python, "-c", machine.client, machine.url, machine.agent_token],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    with agent:
        pending: Any = until(lambda: requests_of(machine), seconds=60)
        (request,) = pending
        assert (request["tool"], request["agent"]) == ("shop__order", "claude")
        tries = attempts(machine, request["id"], request["digest"])
        by_agent = {name: run_as(AGENT, *command) for name, command in tries.items()}
        assert [name for name, ran in by_agent.items() if ran.returncode == 0] == []
        assert all(SHOP_TOKEN not in ran.stdout + ran.stderr for ran in by_agent.values())
        assert requests_of(machine) == [request]
        assert machine.orders() == []
        # The proxy's own user can do all of it: the person decides that way here.
        by_proxy = {name: run_as(PROXY, *command) for name, command in tries.items()}
        assert [name for name, ran in by_proxy.items() if ran.returncode != 0] == []
        output, _ = agent.communicate(timeout=60)
    assert json.loads(output) == {"ordered": "tea", "count": 1}
    assert machine.orders() == ["order tea 1"]


def requests_of(machine: Machine) -> Any:
    """Return the pending requests, as the proxy's user sees them."""
    listed = run_as(PROXY, machine.sayso, "inbox", "--json", "--store", machine.store)
    return json.loads(listed.stdout)["items"] if listed.stdout else []


@pytest.mark.long
def test_agent_reaches_no_server_directly(machine: Machine) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    mine = {"Authorization": f"Bearer {machine.agent_token}"}
    for url, headers in ((machine.shop, {}), (machine.shop, mine), (machine.url, {})):
        assert httpx.post(url, json=body, headers={**accept, **headers}).status_code == 401
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(machine.pid)], capture_output=True, text=True
    )
    children = listed.stdout.split()
    assert children  # the server that the proxy started
    for child in children:
        assert run_as(AGENT, "cat", f"/proc/{child}/environ").returncode != 0
        assert SHOP_TOKEN in run_as(PROXY, "cat", f"/proc/{child}/environ").stdout
    own = run_as(AGENT, machine.sayso, "proxy", "--config", machine.root / "etc/sayso/mcp.json")
    assert own.returncode != 0
    assert "cannot be read" in own.stderr


def test_set_up_needs_a_program_of_root(tmp_path: Path, installed: Installed) -> None:
    root = tmp_path
    program = root / "sayso"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    refused = subprocess.run(
        [DEPLOY / "setup-proxy", SHOP, "claude", "ana"],
        env={**os.environ, "SAYSO_ROOT": str(root), "SAYSO_PROGRAM": str(program)},
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert "must belong to root" in refused.stderr
    assert not (root / "etc").exists()
