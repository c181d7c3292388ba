"""``sayso serve``: the API, the web app and the worker, in one process."""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sayso.cli import options
from sayso.cli.exits import Usage
from sayso.inbox import os_user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI

    from sayso.server.webhooks import Endpoint

PORT = 8321

Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODULE:ATTRIBUTE]...", help="Agents, or functions that make one."),
]
Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on; loopback.")
]
Port = Annotated[int, typer.Option("--port", metavar="NUMBER", help="The port; 0 for a free one.")]
NoAuth = Annotated[
    bool, typer.Option("--no-auth", help="Let everybody in, for local scripts; on loopback only.")
]
Workers = Annotated[
    int, typer.Option("--workers", metavar="N", help="Runs taken further at once; 0 for none.")
]
HostNames = Annotated[
    list[str] | None,
    typer.Option("--host-name", metavar="NAME", help="A name that this server has; repeatable."),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin", metavar="URL", help="A page elsewhere that may write here; repeatable."
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="The policy for agents on other machines."),
]
Environment = Annotated[
    str, typer.Option("--environment", metavar="NAME", help="Shown on the page, such as staging.")
]
Webhooks = Annotated[
    list[str] | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        help="An address to tell of requests, signed with $SAYSO_WEBHOOK_SECRET; repeatable.",
    ),
]
WebhookSecret = Annotated[
    Path | None,
    typer.Option(
        "--webhook-secret-file", metavar="FILE", help="The secret of the webhooks, in a file."
    ),
]
PrivateWebhooks = Annotated[
    bool,
    typer.Option("--webhook-private", help="Let webhooks go to addresses of the own network."),
]
PageUrl = Annotated[
    str, typer.Option("--page-url", metavar="URL", help="Where people open it; for links.")
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log as JSON, one object per line.")]


def serve(
    targets: Targets = None,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    no_auth: NoAuth = False,
    workers: Workers = 8,
    policy: PolicyFile = None,
    host_name: HostNames = None,
    origin: Origins = None,
    environment: Environment = "",
    webhook: Webhooks = None,
    webhook_secret_file: WebhookSecret = None,
    webhook_private: PrivateWebhooks = False,
    page_url: PageUrl = "",
    log_json: LogJson = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Serve the inbox, the API and the agents; decisions made anywhere take their runs further.

    It listens on loopback and wants a token or a session. On a terminal it prints a link that
    signs you in once; elsewhere make a token: `sayso token create NAME --role reviewer`.
    """
    from sayso.cli.agents import load_together
    from sayso.server import create_app
    from sayso.server.logs import Log, begin_logging
    from sayso.server.serving import run

    check_open(host, no_auth=no_auth)
    if workers < 0:
        raise Usage(f"--workers {workers}: give 0 for none, or how many runs at once")
    begin_logging(Log.JSON if log_json else Log.TEXT)
    kept, agents = load_together(targets or (), store)
    app = create_app(
        agents,
        store=kept,
        policy=policy,
        auth=not no_auth,
        hosts=host_name or (),
        origins=_pages(origin or ()),
        workers=workers,
        environment=environment,
        webhooks=_endpoints(webhook or (), webhook_secret_file, webhook_private, page_url),
    )

    def ready(url: str) -> None:
        gc.freeze()
        gc.enable()
        print(f"Sayso is at {url}  (store: {kept.url})", flush=True)
        if not no_auth and sys.stdout.isatty():
            where = link(app, page_url.rstrip("/") or url)
            print(f"Sign in, once and within ten minutes: {where}", flush=True)

    run(app, host, port, ready)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left are tools that nothing else stops


def _pages(origins: Sequence[str]) -> list[str]:
    from sayso.server.access.crossing import pages

    try:
        return pages(origins)
    except ValueError as error:
        raise Usage(f"--origin: {error}") from None


def _endpoints(
    urls: Sequence[str], secret_file: Path | None, private: bool, page: str
) -> list[Endpoint]:
    """Where webhooks go; their secret is never on the command line, which everybody can read."""
    if not urls:
        return []
    from sayso.server.webhooks import Endpoint

    try:
        secret = os.environ.get("SAYSO_WEBHOOK_SECRET", "")
        if secret_file is not None:
            secret = secret_file.read_text("utf-8")
        if not secret:
            raise Usage("--webhook needs $SAYSO_WEBHOOK_SECRET, or --webhook-secret-file")
        return [Endpoint(url, secret.strip(), allow_private=private, page=page) for url in urls]
    except (OSError, ValueError) as error:
        raise Usage(str(error)) from None


def check_open(host: str, *, no_auth: bool) -> None:
    """Refuse to let everybody in from everywhere."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if no_auth and not loopback:
        raise Usage(f"--no-auth on {host} would let everybody decide: listen on 127.0.0.1")


def link(app: FastAPI, url: str) -> str:
    """A link that signs the user of the system in, once."""
    from sayso.server.access.signing_in import new_link

    return f"{url}/login#{new_link(app.state.sayso.store, os_user().name)}"


def open_browser(url: str) -> None:
    """Show a page, where there is a browser to show it in."""
    graphical = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY")
    if graphical or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
