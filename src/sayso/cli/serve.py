"""``sayso serve`` (API, web app and worker in one process) and ``sayso worker``."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import os
import signal
import subprocess
import sys
import webbrowser
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sayso.cli import common
from sayso.cli.channels import (
    MailServer,
    PrivatePush,
    SlackToken,
    TelegramToken,
    configured_channels,
    push_channel,
)
from sayso.cli.common import Usage
from sayso.errors import InvalidCall
from sayso.inbox import Inbox, os_user
from sayso.stores.address import address_of, is_in_memory
from sayso.sync import exit_soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from fastapi import FastAPI

    from sayso.agent import Resumable
    from sayso.channels.kit.service import ChatChannel
    from sayso.server.monitoring import Metrics
    from sayso.server.webhooks import Endpoint
    from sayso.stores.base import Store
    from sayso.worker import Worker
    from sayso.worker.temporal import TemporalDispatch

PORT = 8321

Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODULE:ATTRIBUTE", help="Agents, or functions that return one."),
]
Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on, or unix:PATH.")
]
Port = Annotated[
    int, typer.Option("--port", metavar="NUMBER", help="The port to listen on; 0 picks a free one.")
]
NoAuth = Annotated[
    bool, typer.Option("--no-auth", help="Skip authentication, for local scripts; loopback only.")
]
Workers = Annotated[
    int, typer.Option("--workers", metavar="N", help="How many runs to resume at once; 0 for none.")
]
HostNames = Annotated[
    list[str] | None,
    typer.Option("--host-name", metavar="NAME", help="This server's name or URL; repeatable."),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin", metavar="URL", help="Another origin that may call the API; repeatable."
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="The policy for remote agents: a file, or watch, balanced or strict.",
    ),
]
ObservedFile = Annotated[
    Path | None,
    typer.Option(
        "--observe",
        metavar="FILE",
        help="A second policy that decides nothing: see `sayso policy observed`.",
    ),
]
Environment = Annotated[
    str,
    typer.Option("--environment", metavar="NAME", help="A label for the page, such as staging."),
]
Webhooks = Annotated[
    list[str] | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        help="A webhook to call, signed with $SAYSO_WEBHOOK_SECRET; repeatable.",
    ),
]
WebhookSecret = Annotated[
    Path | None,
    typer.Option(
        "--webhook-secret-file", metavar="FILE", help="A file with the webhooks' signing secret."
    ),
]
PrivateWebhooks = Annotated[
    bool,
    typer.Option("--webhook-private", help="Allow webhooks to private network addresses."),
]
OidcFile = Annotated[
    Path | None,
    typer.Option(
        "--oidc", metavar="FILE", help="Sign people in through the OpenID provider of this file."
    ),
]
ProxyFile = Annotated[
    Path | None,
    typer.Option(
        "--trusted-proxy", metavar="FILE", help="Let the proxy of this file name who the caller is."
    ),
]
PageUrl = Annotated[
    str, typer.Option("--page-url", metavar="URL", help="The public URL of the web app, for links.")
]


def serve(
    targets: Targets = None,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    no_auth: NoAuth = False,
    workers: Workers = 8,
    policy: PolicyFile = None,
    observe: ObservedFile = None,
    host_name: HostNames = None,
    origin: Origins = None,
    environment: Environment = "",
    webhook: Webhooks = None,
    webhook_secret_file: WebhookSecret = None,
    webhook_private: PrivateWebhooks = False,
    page_url: PageUrl = "",
    oidc: OidcFile = None,
    trusted_proxy: ProxyFile = None,
    telegram_token_file: TelegramToken = None,
    slack_token_file: SlackToken = None,
    mail_server: MailServer = "",
    push_private: PrivatePush = False,
    log_json: common.LogJson = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Serve the web app and the API, and resume runs of these agents.

    Listens on loopback unless you pass --host, and requires a token or a session. In a terminal it
    prints a one-time sign-in link; elsewhere, create a token: `sayso token create NAME --role
    reviewer`.
    """
    from sayso.cli.load_agents import load_together
    from sayso.gate.gate import read_policy
    from sayso.server import create_app
    from sayso.server.logs import begin_logging
    from sayso.server.middleware import normalize_origins
    from sayso.server.proxy import ProxySettings
    from sayso.server.serving import run

    if no_auth and not is_loopback(host):
        raise Usage(f"--no-auth on {host} would let anyone decide: listen on 127.0.0.1")
    _warn_of_plain_http(host, [page_url, *(host_name or ())])
    if workers < 0:
        raise Usage(f"--workers {workers}: use 0 or a positive number")
    try:
        origins = normalize_origins(origin or ())
    except ValueError as error:
        raise Usage(f"--origin: {error}") from None
    oidc_settings = None
    if oidc is not None:
        try:
            from sayso.server.oidc import Settings
        except ImportError as error:
            raise Usage(str(error)) from None
        oidc_settings = Settings.load(oidc)
    if observe is not None:
        read_policy(str(observe))  # a mistake would only be logged later
    begin_logging(as_json=log_json)
    shared, agents = load_together(targets or (), store)
    _warn_of_store_in_git(shared.url)
    bots = configured_channels(telegram_token_file, slack_token_file, mail_server, page_url)
    push = () if no_auth else push_channel(shared, page_url, private=push_private)
    app = create_app(
        agents,
        store=shared,
        policy=policy,
        observe=observe,
        auth=not no_auth,
        hosts=host_name or (),
        origins=origins,
        workers=workers,
        environment=environment,
        oidc=oidc_settings,
        proxy=None if trusted_proxy is None else ProxySettings.load(trusted_proxy),
        webhooks=_endpoints(webhook or (), webhook_secret_file, webhook_private, page_url),
        channels=[*bots, *push],
        page_url=page_url,
    )

    def ready(url: str) -> None:
        gc.freeze()
        gc.enable()
        print(f"Sayso is at {url}  (store: {shared.url})", flush=True)
        has_page = bool(page_url) or not url.startswith("unix:")
        if not no_auth and has_page and sys.stdout.isatty():
            where = sign_in_link(app, page_url.rstrip("/") or url)
            print(f"Sign in (works once, for ten minutes): {where}", flush=True)

    run(app, host, port, ready)


def _endpoints(
    urls: Sequence[str], secret_file: Path | None, private: bool, page: str
) -> list[Endpoint]:
    """Return the webhooks. Their secret is no option, because other users see command lines."""
    if not urls:
        return []
    from sayso.server.webhooks import Endpoint

    try:
        secret = os.environ.get("SAYSO_WEBHOOK_SECRET", "")
        if secret_file is not None:
            secret = secret_file.read_text("utf-8")
        if not secret:
            raise Usage("--webhook needs $SAYSO_WEBHOOK_SECRET or --webhook-secret-file")
        return [Endpoint(url, secret.strip(), allow_private=private, page=page) for url in urls]
    except (OSError, ValueError) as error:
        raise Usage(str(error)) from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _warn_of_plain_http(host: str, public: Sequence[str]) -> None:
    """Warn if other machines can send tokens here unencrypted, unless a proxy is said to do TLS."""
    if is_loopback(host) or any(url.startswith("https://") for url in public):
        return
    print(
        f"Warning: {host} is reachable from other machines over plain HTTP, which anyone on the "
        "way can read. Put a proxy with TLS in front, and pass its address as "
        "--host-name https://NAME; or listen on 127.0.0.1.",
        file=sys.stderr,
        flush=True,
    )


def _warn_of_store_in_git(url: str) -> None:
    """Warn if the next commit may contain the store, with everything that was asked, or its key."""
    path = address_of(url).path
    if path is None or not any((folder / ".git").exists() for folder in path.parents):
        return
    files = [str(path), f"{path}.key", f"{path}.vapid", f"{path}-wal"]
    git = ["git", "-C", str(path.parent), "-c", "core.fsmonitor=false"]
    try:
        ignored = subprocess.run(
            [*git, "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join(files),
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # without git, nobody commits here
    if ignored.returncode in (0, 1) and set(ignored.stdout.split("\0")) < {*files, ""}:
        print(
            f"Warning: {path} is in a git repository that does not ignore it and its key. Add "
            f"{path.name}* to .gitignore, or pass --store with a path elsewhere.",
            file=sys.stderr,
            flush=True,
        )


def sign_in_link(app: FastAPI, url: str) -> str:
    """Return a one-time link that signs in the operating system's user."""
    from sayso.inbox.directory import new_link

    return f"{url}/login#{new_link(app.state.sayso.store, os_user().name)}"


def open_browser(url: str) -> None:
    """Open a page in the browser, if there is a display."""
    displays = (os.environ.get("DISPLAY"), os.environ.get("WAYLAND_DISPLAY"))
    if sys.platform == "darwin" or any(displays):
        webbrowser.open(url)


WorkerTargets = Annotated[
    list[str],
    typer.Argument(metavar="MODULE:ATTRIBUTE", help="Agents, or functions that return one."),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", help="How many runs to resume at once.")
]
Dispatch = Annotated[
    str | None,
    typer.Option(
        "--dispatch",
        metavar="URL",
        help="Let Temporal dispatch runs: temporal://host:port[/namespace].",
    ),
]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        help="Serve /metrics and /healthz on this port, on loopback unless you give an address.",
    ),
]


def worker(
    targets: WorkerTargets,
    concurrency: Concurrency = 8,
    dispatch: Dispatch = None,
    metrics: MetricsPort = None,
    page_url: PageUrl = "",
    telegram_token_file: TelegramToken = None,
    slack_token_file: SlackToken = None,
    mail_server: MailServer = "",
    push_private: PrivatePush = False,
    log_json: common.LogJson = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Resume runs that are ready, close expired requests, and send messages to people.

    Start as many workers as you like next to `sayso serve --workers 0`, and kill any of them.
    SIGTERM and Ctrl-C wait until the current runs pause or end; a second Ctrl-C does not.
    """
    from sayso.cli.load_agents import load_together
    from sayso.server.logs import begin_logging

    if concurrency < 1:
        raise Usage(f"--concurrency {concurrency}: use at least 1")
    begin_logging(as_json=log_json)
    shared, agents = load_together(targets, store)
    if is_in_memory(shared.url):
        raise Usage("memory:// is not shared between processes: use --store")
    bots = configured_channels(telegram_token_file, slack_token_file, mail_server, page_url)
    channels = _worker_channels(shared, bots, page_url, private=push_private)
    with closing(shared):

        async def work() -> None:
            from sayso.worker import Worker

            on_step = None
            figures = None
            if metrics is not None:
                from sayso.server.monitoring import Metrics  # needs the web server's packages

                figures = Metrics()
                on_step = figures.step
            worker = Worker(agents, shared, concurrency=concurrency, on_step=on_step)
            working = worker if dispatch is None else _temporal_dispatch(worker, dispatch)
            interrupts = 0

            def interrupt() -> None:
                """Stop gracefully at the first Ctrl-C, cut running calls short at the second."""
                nonlocal interrupts
                interrupts += 1
                if interrupts > 1:
                    working.cut_short()
                else:
                    working.stop()

            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, working.stop)
            loop.add_signal_handler(signal.SIGINT, interrupt)
            names = ", ".join(agent.name for agent in agents)
            via = "" if dispatch is None else f", dispatch: {dispatch}"
            gc.freeze()
            gc.enable()
            serving: AbstractContextManager[str | None] = nullcontext()
            if metrics is not None and figures is not None:
                from sayso.server.serving import serve_worker_metrics

                address = common.listen_address(metrics, "--metrics")
                serving = serve_worker_metrics(address, worker, figures)
            with serving as where:
                at = "" if where is None else f", metrics: {where}/metrics"
                async with _reaching_people(shared, agents, channels, page_url, figures):
                    print(f"Resuming runs of {names}  (store: {shared.url}{via}{at})", flush=True)
                    await working.run()
            # A loop that closes frees the pipe of its signals before their handlers.
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
            if interrupts > 1:
                exit_soon()

        asyncio.run(work())


def _worker_channels(
    store: Store, bots: Sequence[ChatChannel], page_url: str, *, private: bool
) -> Sequence[ChatChannel]:
    """Return the channels that a worker runs. Raises ``Usage`` if nobody could decide in them."""
    if store.keys.can_sign:
        return [*bots, *push_channel(store, page_url, private=private)]
    if bots:
        raise Usage("people decide in messages, and this key can only verify: use `sayso serve`")
    return ()


@contextlib.asynccontextmanager
async def _reaching_people(
    store: Store,
    agents: Sequence[Resumable],
    channels: Sequence[ChatChannel],
    page_url: str,
    figures: Metrics | None,
) -> AsyncIterator[None]:
    """Run channels to people inside this block."""
    if not channels:
        yield
        return
    from sayso.agent.edits import edit_judge, edit_validator
    from sayso.channels.kit.courier import NoObserver
    from sayso.channels.kit.service import ChannelService

    box = Inbox(store, judge=edit_judge(agents), validate=edit_validator(agents))
    service = ChannelService(box, channels, page_url, figures or NoObserver())
    await service.begin()
    running = asyncio.create_task(service.run())
    try:
        yield
    finally:
        service.stop()
        await running


def _temporal_dispatch(worker: Worker, url: str) -> TemporalDispatch:
    try:
        from sayso.worker.temporal import Address, TemporalDispatch
    except ImportError:
        message = f'--dispatch {url}: Temporal is not installed: pip install "sayso[temporal]"'
        raise Usage(message) from None
    try:
        return TemporalDispatch(worker, Address.of(url))
    except InvalidCall as error:
        raise Usage(f"--dispatch {error}") from None
