"""The app: routes, middleware, and the background tasks that run as long as it is up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from sayso.agent.agent import Resumable, lend_store
from sayso.agent.edits import edit_judge, edit_validator
from sayso.agent.events import wait_for_streams
from sayso.channels.kit.service import ChannelService, ChatChannel
from sayso.errors import SaysoError, StoreClosed
from sayso.gate import Gate
from sayso.gate.review import Reviews
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.server import openapi, responses
from sayso.server.access import RightsWatch
from sayso.server.feed import Feed
from sayso.server.middleware import SecurityMiddleware, normalize_origins
from sayso.server.monitoring import HealthCheck, Metrics, StoreMetrics, TallyCache
from sayso.server.proxy import ProxySettings, TrustedProxy
from sayso.server.remote_agents import policy_judge
from sayso.server.request_views import RequestListCache
from sayso.server.routes import channels as channels_routes
from sayso.server.routes import (
    chat,
    events,
    inbox,
    people,
    remote_agents,
    runs,
    saved_views,
    sign_in,
    stats,
    system,
)
from sayso.server.service import HookSessions, Limits, Service
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.outage import Outage, outage_of
from sayso.stores.sql import presence
from sayso.sync import to_thread
from sayso.worker import Worker

if TYPE_CHECKING:
    from sayso.channels.kit.service import Runner
    from sayso.server.oidc import Provider, Settings
    from sayso.server.webhooks import Endpoint

log = logging.getLogger("sayso.server")

#: Seconds between checks whether a seal is due.
SEAL_CHECK = 10.0
_STATIC = Path(__file__).parent / "static"
_PAGES = (
    *("", "inbox", "grants", "chat", "runs", "history", "insights"),
    *("people", "account", "settings", "notifications", "login"),
)


def create_app(
    agents: Resumable | Iterable[Resumable] = (),
    *,
    store: str | Path | Store = "sqlite:///sayso.db",
    policy: Policy | str | Path | None = None,
    observe: Policy | str | Path | None = None,
    models: Mapping[str, Reviews] | None = None,
    auth: bool = True,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    workers: int = 8,
    environment: str = "",
    demo: bool = False,
    limits: Limits | None = None,
    oidc: Settings | None = None,
    proxy: ProxySettings | None = None,
    webhooks: Sequence[Endpoint] = (),
    channels: Sequence[ChatChannel] = (),
    page_url: str = "",
) -> FastAPI:
    """Create the server as a FastAPI app, to serve on its own or to mount into another app.

    Agents without a store use this one. ``policy`` applies to the requests of remote agents, and
    ``observe`` is a second policy that only reports what it would have done. ``models`` are
    functions that its rules can name as first reviewers.
    ``hosts`` are the server's names, besides IP addresses and names without a dot. ``origins`` are
    pages on other sites that may write here with a token. ``workers`` is how many runs to advance
    at once, 0 for none. ``oidc`` are the settings of an OpenID provider through which people sign
    in, and ``proxy`` those of a proxy that signs them in. ``webhooks`` are notified when requests
    are opened, decided and closed. ``channels`` ask people in chats, with links to the web app at
    ``page_url``.
    """
    opened = open_store(store)
    by_name = _by_name(agents, opened)
    metrics = Metrics()
    gate = Gate(opened, policy=policy, observe=observe, agent="remote", wait=0, models=models)
    provider: Provider | None = None
    if oidc is not None:
        from sayso.server.oidc import Provider  # needs an extra

        provider = Provider(oidc)
    judge = edit_judge(by_name.values(), policy_judge(gate))
    validate = edit_validator(by_name.values())
    requests = Inbox(opened, judge=judge, validate=validate)
    endpoints: list[Runner] = []
    if webhooks:
        from sayso.server.webhooks import webhook_runner  # imports an HTTP client

        endpoints = [webhook_runner(opened, endpoint, metrics) for endpoint in webhooks]
    service = Service(
        store=opened,
        inbox=requests,
        judge=judge,
        validate=validate,
        request_lists=RequestListCache(opened),
        gate=gate,
        agents=by_name,
        default_agent=next(iter(by_name), ""),
        worker=Worker(
            by_name.values(), opened, concurrency=workers, on_step=metrics.step, streams=True
        ),
        feed=Feed(opened),
        rights=RightsWatch(opened),
        limits=limits or Limits(),
        metrics=metrics,
        store_metrics=StoreMetrics(opened, metrics),
        health=HealthCheck(opened),
        hooks=HookSessions(),
        tally_cache=TallyCache(opened),
        oidc=provider,
        proxy=None if proxy is None else TrustedProxy(proxy),
        channels=ChannelService(requests, channels, page_url, metrics, endpoints),
        passkeys=auth and find_spec("webauthn") is not None,
        auth=auth,
        environment=environment,
        demo=demo,
    )
    app = FastAPI(
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.state.sayso = service
    app.openapi = lambda: openapi.describe(app)  # type: ignore[method-assign]
    app.add_middleware(
        SecurityMiddleware,
        hosts=[hosts] if isinstance(hosts, str) else hosts,
        origins=normalize_origins(origins),
        metrics=metrics,
    )
    app.add_exception_handler(SaysoError, responses.handle_sayso_error)
    app.add_exception_handler(RequestValidationError, responses.handle_validation_error)
    app.add_exception_handler(HTTPException, responses.handle_http_error)
    app.add_exception_handler(Exception, responses.handle_unexpected_error)
    for router in (
        chat.router,  # first, because it is the most latency-sensitive
        chat.recipe_router,
        chat.ag_ui_router,
        chat.chats_router,
        remote_agents.router,
        inbox.router,
        inbox.grants_router,
        inbox.refusals_router,
        events.router,
        runs.router,
        stats.router,
        people.router,
        channels_routes.router,
        saved_views.router,
        sign_in.router,
        system.router,
        system.health_router,
    ):
        # Not include_router: FastAPI matches included routes more slowly, by 0.1 ms per request.
        app.router.routes += router.routes
    _add_pages(app)
    return app


def _by_name(agents: Resumable | Iterable[Resumable], store: Store) -> dict[str, Resumable]:
    by_name: dict[str, Resumable] = {}
    for agent in [agents] if isinstance(agents, Resumable) else agents:
        if not isinstance(agent, Resumable):
            raise TypeError(
                f"{agent!r:.80} is not an agent: pass agents as a list, and the store as store="
            )
        if agent.name in by_name:
            raise ValueError(f"two agents are named {agent.name!r}: rename one")
        lend_store(agent, store)
        by_name[agent.name] = agent
    return by_name


# -- the web app


def _add_pages(app: FastAPI) -> None:
    """Serve the web app. Its page is public: all data comes from the API."""
    # Only these are compressed: the length of a compressed API answer could tell what is in it.
    assets = GZipMiddleware(StaticFiles(directory=_STATIC / "assets"))
    app.mount("/assets", assets, name="assets")
    app.add_route("/service-worker.js", _service_worker, include_in_schema=False)
    for name in _PAGES:
        app.add_route(f"/{name}", _page, include_in_schema=False)
        if name:
            app.add_route(f"/{name}/{{rest:path}}", _page, include_in_schema=False)


async def _page(request: Request) -> Response:
    return FileResponse(_STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _service_worker(request: Request) -> Response:
    """Serve the script that shows push messages; from here, because its folder is its scope."""
    return FileResponse(_STATIC / "service-worker.js", headers={"cache-control": "no-cache"})


# -- background tasks


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the feed, the worker, sealing and channels. On shutdown, let running calls finish."""
    service: Service = app.state.sayso
    presence.announce(service.store)
    await service.channels.begin()
    feed = asyncio.create_task(service.feed.run())
    worker = asyncio.create_task(service.worker.run())
    sealing = asyncio.create_task(_seal_when_due(service.store))
    tasks = [feed, worker, sealing, asyncio.create_task(service.channels.run())]
    for task in tasks:
        task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        service.worker.stop()
        service.feed.close()
        service.channels.stop()
        await worker
        await wait_for_streams()
        feed.cancel()
        sealing.cancel()
        if service.oidc is not None:
            await service.oidc.close()
        if service.proxy is not None:
            await service.proxy.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        service.inbox.close()


async def _seal_when_due(store: Store) -> None:
    """Seal the audit log when it is due.

    The server has to: with Ed25519 keys no worker can sign, and a quiet server commits nothing.
    """
    outage = Outage("the seal of the audit log", within=outage_of(store))
    while store.keys.can_sign:
        try:
            await to_thread(store.seal_if_due)
            outage.over()
        except StoreClosed:
            return
        except SaysoError as error:
            outage.failed(error)
        await asyncio.sleep(SEAL_CHECK)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a background task failed: %r", task.exception())
