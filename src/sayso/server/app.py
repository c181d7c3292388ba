"""The app: routes, guards, and what runs beside them for as long as it is up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from sayso.agent.agent import Resumable, lend_store
from sayso.agent.events import wait_for_streams
from sayso.errors import SaysoError
from sayso.gate import Gate
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.server.access import crossing
from sayso.server.access.guards import Guards
from sayso.server.access.limits import Limits
from sayso.server.feed import Feed
from sayso.server.metrics import Metrics
from sayso.server.pulse import Pulse
from sayso.server.routes import chat, deciding, events, grants, health, records, session
from sayso.server.routes import remote as elsewhere
from sayso.server.routes import requests as requests_
from sayso.server.routes.pages import add_pages
from sayso.server.service import Service
from sayso.server.showing.cards import Cards
from sayso.server.showing.judging import judge_of
from sayso.server.wire import answers, docs
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.twin import hop
from sayso.worker import Worker

if TYPE_CHECKING:
    from sayso.server.webhooks import Endpoint, Outbox

log = logging.getLogger("sayso.server")

#: How often to look whether a seal is due, in seconds.
SEAL_CHECK = 10.0


def create_app(
    agents: Resumable | Iterable[Resumable] = (),
    *,
    store: str | Path | Store = "sqlite:///sayso.db",
    policy: Policy | str | Path | None = None,
    auth: bool = True,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    workers: int = 8,
    environment: str = "",
    demo: bool = False,
    limits: Limits | None = None,
    webhooks: Sequence[Endpoint] = (),
) -> FastAPI:
    """The HTTP face as one app, to serve by itself or to mount into another.

    Agents that name no store are lent this one. ``workers`` is how many runs are taken further at
    once, 0 for none. ``policy`` judges what remote agents ask. ``hosts`` are the names that the
    server has beside addresses and names without a dot; ``origins`` are pages elsewhere that may
    write here with a token. ``webhooks`` are told when requests are opened, decided and closed.
    """
    pages = crossing.pages(origins)
    kept = open_store(store)
    named = _named(agents, kept)
    metrics = Metrics()
    gate = Gate(kept, policy=policy, agent="remote", wait=0)
    inbox = Inbox(kept, judge=judge_of(named.values(), gate))
    service = Service(
        store=kept,
        inbox=inbox,
        cards=Cards(inbox),
        gate=gate,
        agents=named,
        default=next(iter(named), ""),
        worker=Worker(
            named.values(), kept, concurrency=workers, on_step=metrics.step, streams=True
        ),
        feed=Feed(kept),
        limits=limits or Limits(),
        metrics=metrics,
        pulse=Pulse(kept),
        auth=auth,
        environment=environment,
        demo=demo,
    )
    app = FastAPI(
        lifespan=_life,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.state.sayso = service
    app.state.outbox = _outbox(service, webhooks)
    app.openapi = lambda: docs.describe(app)  # type: ignore[method-assign]
    names = [hosts] if isinstance(hosts, str) else hosts
    app.add_middleware(Guards, hosts=names, origins=pages, metrics=metrics)
    app.add_exception_handler(SaysoError, answers.refused)
    app.add_exception_handler(RequestValidationError, answers.invalid)
    app.add_exception_handler(HTTPException, answers.http)
    app.add_exception_handler(Exception, answers.broken)
    chat.add_chat(app)  # first: routes are tried in order, and this one is waited for word by word
    for part in (elsewhere, requests_, deciding, grants, events, records, session, health, chat):
        app.router.routes += part.router.routes  # included, each would be built a second time
    add_pages(app)
    return app


def _named(agents: Resumable | Iterable[Resumable], store: Store) -> dict[str, Resumable]:
    named: dict[str, Resumable] = {}
    for agent in [agents] if isinstance(agents, Resumable) else agents:
        if not isinstance(agent, Resumable):
            raise TypeError(f"{agent!r:.80} is no agent: pass agents as a list, the store by name")
        if agent.name in named:
            raise ValueError(f"two agents are called {agent.name!r}: rename one")
        lend_store(agent, store)
        named[agent.name] = agent
    return named


def _outbox(service: Service, webhooks: Sequence[Endpoint]) -> Outbox | None:
    if not webhooks:
        return None
    from sayso.server.webhooks import Outbox  # brings an HTTP client

    return Outbox(service.store, webhooks, service.metrics)


@contextlib.asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    """Feed, worker and sealing live as long as the app; what is being run is finished first."""
    service: Service = app.state.sayso
    outbox: Outbox | None = app.state.outbox
    if outbox is not None:
        await outbox.begin()
    tasks = [asyncio.create_task(service.feed.run()), asyncio.create_task(service.worker.run())]
    sealing = asyncio.create_task(_keep_sealed(service.store))
    tasks.append(sealing)
    if outbox is not None:
        tasks.append(asyncio.create_task(outbox.run()))
    for task in tasks:
        task.add_done_callback(_watched)
    try:
        yield
    finally:
        service.worker.stop()
        service.feed.close()
        if outbox is not None:
            outbox.stop()
        await tasks[1]
        await wait_for_streams()
        tasks[0].cancel()
        sealing.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        service.inbox.close()


async def _keep_sealed(store: Store) -> None:
    """Make the seals that are due. With Ed25519 keys no worker can, and nobody may commit here."""
    while store.keys.can_sign:
        try:
            await hop(store.seal_if_due)
        except SaysoError as error:
            log.warning("not sealed now, trying again: %s", error)
        await asyncio.sleep(SEAL_CHECK)


def _watched(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a background task ended: %r", task.exception())
