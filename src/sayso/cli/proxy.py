"""``sayso proxy``: put MCP servers behind approval. ``sayso mcp``: ask people over MCP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sayso.cli import common
from sayso.cli.common import Usage
from sayso.cli.serve import is_loopback
from sayso.stores import open_store
from sayso.stores.address import address_of

if TYPE_CHECKING:
    from sayso.client import RemoteGate
    from sayso.gate import Gate
    from sayso.mcp.advisory import AdvisoryServer
    from sayso.mcp.proxy import Proxy
    from sayso.mcp.state import StateFile
    from sayso.stores.base import Store

ConfigFile = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="A JSON file with mcpServers.")
]
Stdio = Annotated[
    bool, typer.Option("--stdio", help="Serve one client on standard input and output (default).")
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen", metavar="[ADDRESS:]PORT", help="Serve clients over HTTP; port 0 picks one."
    ),
]
NoAuth = Annotated[
    bool, typer.Option("--no-auth", help="Require no token over HTTP; loopback only.")
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask through `sayso serve`, with the agent token in SAYSO_TOKEN.",
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="The policy, instead of the one in the config."),
]


def proxy(
    config: ConfigFile,
    stdio: Stdio = False,
    listen: Listen = None,
    no_auth: NoAuth = False,
    server: ServerUrl = None,
    policy: PolicyFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Put MCP servers behind approval: one endpoint for all of them.

    Reads the usual mcpServers JSON, starts or connects to each server, and asks before their tools
    run. Tools that no rule of the policy mentions need approval. Over HTTP, clients send an agent
    token: `sayso token create NAME --role agent`.
    """
    address = front_address(stdio, listen, no_auth)
    try:
        from sayso.mcp.config import read_config
    except ImportError as missing:
        raise Usage(f"sayso proxy: {missing}") from None
    settings = read_config(config)
    if policy is not None:
        settings = replace(settings, policy=policy)
    if server is not None and settings.policy is not None:
        raise Usage("with --server, the policy of `sayso serve` decides: remove the policy here")
    gates = Gates(store, server, settings.policy)

    def make() -> Proxy:
        from sayso.mcp.proxy import Proxy

        return Proxy(settings, gates.of, gates.state())

    run_front("Sayso proxy", make, address, gates, no_auth)


AgentName = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="The name of the agent in requests.")
]
Hold = Annotated[
    float,
    typer.Option("--hold", metavar="SECONDS", help="How long a call waits for a person."),
]


def advisory(
    stdio: Stdio = False,
    listen: Listen = None,
    no_auth: NoAuth = False,
    server: ServerUrl = None,
    agent: AgentName = "mcp",
    hold: Hold = 45.0,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Serve MCP tools that let an agent ask people: ask_human, request_approval and two more.

    Nothing forces an agent to use them. To make sure that it asks, put its tools behind
    `sayso proxy`.
    """
    address = front_address(stdio, listen, no_auth)
    if hold <= 0:
        raise Usage(f"--hold {hold:g}: use a positive number of seconds")
    try:
        import sayso.mcp  # noqa: F401
    except ImportError as missing:
        raise Usage(f"sayso mcp: {missing}") from None
    gates = Gates(store, server)

    def make() -> AdvisoryServer:
        from sayso.mcp.advisory import AdvisoryServer

        return AdvisoryServer(gates.of, agent=agent, hold=hold, state=gates.state())

    run_front("Sayso", make, address, gates, no_auth)


class Gates:
    """One gate per agent, on one store or server."""

    def __init__(self, store: str, server: str | None, policy: Path | None = None) -> None:
        self._server = server or ""
        self._policy = policy
        self._token = os.environ.get(common.TOKEN_VARIABLE) or ""
        #: The tokens of agents that a server has accepted.
        self._tokens: dict[str, str] = {}
        self._made: dict[str, Gate | RemoteGate] = {}
        self._store: Store | None = None
        if server is None:
            if address_of(store).kind == "memory":
                raise Usage("memory:// is not shared, so nobody could decide: use --store")
            self._store = open_store(store)
        elif not self._token:
            raise Usage("--server needs an agent token in SAYSO_TOKEN")

    @property
    def place(self) -> str:
        return f"server: {self._server}" if self._store is None else f"store: {self._store.url}"

    def of(self, agent: str) -> Gate | RemoteGate:
        if agent not in self._made:
            if self._store is None:
                from sayso.client import RemoteGate

                token = self._tokens.get(agent, self._token)
                self._made[agent] = RemoteGate(self._server, token=token, wait=None)
            else:
                from sayso.gate import Gate

                policy = self._policy
                self._made[agent] = Gate(self._store, policy=policy, agent=agent, wait=None)
        return self._made[agent]

    def agents(self) -> tuple[str, ...]:
        """Return the agents that have a token, whose calls may have been left open."""
        if self._store is None:
            return ()
        return tuple({token.person for token in self._store.credentials() if token.role == "agent"})

    def tokens(self) -> Any:
        """Return the verifier for the tokens of HTTP clients."""
        from sayso.mcp.front import ServerTokens, StoreTokens

        if self._store is None:
            return ServerTokens(self._server, self._tokens.__setitem__)
        return StoreTokens(self._store)

    def state(self) -> StateFile | None:
        """Return the file that keeps what a store would, if there is no store here."""
        if self._store is not None:
            return None
        from sayso.mcp.state import StateFile, state_path

        return StateFile(state_path(self._server, self._token))

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def front_address(stdio: bool, listen: str | None, no_auth: bool) -> tuple[str, int] | None:
    """Return the address to listen on, or None for standard input and output."""
    if listen is None:
        if no_auth:
            raise Usage("--no-auth is for --listen: there are no tokens on standard input")
        return None
    if stdio:
        raise Usage("use --stdio or --listen, not both")
    host, port = common.listen_address(listen, "--listen")
    if no_auth and not is_loopback(host):
        raise Usage(f"--no-auth on {host} would let anyone call the tools: listen on 127.0.0.1")
    return host, port


def run_front(
    what: str,
    make: Callable[[], Proxy | AdvisoryServer],
    address: tuple[str, int] | None,
    gates: Gates,
    no_auth: bool,
) -> None:
    """Serve clients until the input ends or a signal arrives, then end the process."""
    # Hosts of MCP servers collect the standard error.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="sayso: %(message)s")

    async def work() -> None:
        from sayso.mcp.front import bind, serve_http, serve_stdio, stopped_by_signals

        front = make()
        try:
            async with front.running(gates.agents()):
                if address is None:
                    stopped = asyncio.ensure_future(stopped_by_signals().wait())
                    serving = asyncio.create_task(serve_stdio(front.server))
                    await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
                    if serving.done():
                        serving.result()
                else:
                    await serve_http(
                        front.server,
                        bind(*address),
                        None if no_auth else gates.tokens(),
                        lambda url: print(f"{what} is at {url}  ({gates.place})", flush=True),
                    )
        finally:
            gates.close()
        # Everything is written. Do not wait for OS threads that read the input, or for an idle
        # pool: the client expects the process to be gone.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(0)

    asyncio.run(work())
