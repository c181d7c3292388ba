"""Where the ``sayso`` script starts.

Commands start often, and something waits for them. So each loads only its own module. Scripts ask
for the version often, and that loads nothing. A coding agent runs ``sayso hook run`` before each
tool use, so that loads the standard library only.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from sayso import __version__

if TYPE_CHECKING:
    import typer

#: The commands in the order of the help, and where each is: a module of this package, and a
#: function or a group of commands in it.
COMMANDS = {
    "demo": ("chat", "demo"),
    "serve": ("serve", "serve"),
    "worker": ("serve", "worker"),
    "chat": ("chat", "chat"),
    "proxy": ("proxy", "proxy"),
    "mcp": ("proxy", "advisory"),
    "inbox": ("inbox", "inbox"),
    "show": ("inbox", "show_request"),
    "approve": ("decide", "approve"),
    "reject": ("decide", "reject"),
    "edit": ("decide", "edit"),
    "respond": ("decide", "respond"),
    "cancel": ("decide", "cancel"),
    "history": ("inbox", "history"),
    "grants": ("admin", "grants"),
    "people": ("people", "people"),
    "token": ("admin", "tokens"),
    "channels": ("channels", "channels"),
    "keys": ("keys", "keys"),
    "policy": ("admin", "policy"),
    "audit": ("admin", "audit"),
    "coverage": ("admin", "coverage"),
    "hook": ("hook", "hook"),
    "recover": ("admin", "recover"),
    "upgrade": ("upgrade", "upgrade"),
    "prune": ("admin", "prune"),
    "doctor": ("doctor", "doctor"),
    "selftest": ("selftest", "selftest"),
}

#: Packages of the extra ``server``, which ``serve``, ``demo`` and ``worker --metrics`` need.
_SERVER = {"fastapi", "httptools", "prometheus_client", "standardwebhooks", "starlette", "uvicorn"}


def app_of(command: str = "") -> typer.Typer:
    """Return the command line with this command only, or with all if there is none of that name."""
    import typer

    from sayso.cli.common import new_app

    app = new_app()
    for name in [command] if command in COMMANDS else COMMANDS:
        module, attribute = COMMANDS[name]
        target = getattr(import_module(f"sayso.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name)
        else:
            app.command(name)(target)
    return app


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while it loads ends it at once
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if sys.argv[1:] == ["--version"]:
        print(f"sayso {__version__}")
        return
    if sys.argv[1:3] == ["hook", "run"]:
        from sayso.hooks.program import main as hook

        hook(sys.argv[3:])
    from sayso.cli.common import run

    try:
        if name in ("serve", "worker"):
            gc.disable()  # until it is up: nothing that is loaded now becomes garbage
        run(app_of(name))
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in _SERVER:
            raise
        if name == "demo":
            _fetch_server()
        print(
            f"sayso {name} needs the web server. Install it with:\n\n"
            "    pip install 'sayso[server]'",
            file=sys.stderr,
        )
        sys.exit(1)


def _fetch_server() -> None:
    """Start ``uvx sayso demo`` again with the extra ``server``. Return if uvx did not start it.

    uvx installs a package without extras into an environment that nobody keeps. Under ``uv run``,
    the project is the place to add the extra. See docs/decisions/0075-uvx-fetches-the-server.md.
    """
    uv = os.environ.get("UV")
    if not uv or "UV_RUN_RECURSION_DEPTH" in os.environ:
        return
    import json
    from importlib.metadata import distribution

    origin = json.loads(distribution("sayso").read_text("direct_url.json") or "{}").get("url")
    wanted = f"sayso[server] @ {origin}" if origin else f"sayso[server]=={__version__}"
    print(f"Fetching the web server: uvx --from '{wanted}' sayso demo", file=sys.stderr, flush=True)
    command = [uv, "tool", "run", "--python", sys.base_prefix, "--from", wanted, "sayso"]
    os.execve(uv, [*command, *sys.argv[1:]], {**os.environ, "UV_RUN_RECURSION_DEPTH": "1"})
