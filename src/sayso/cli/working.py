"""``sayso worker``: runs that are due are taken further here, on as many machines as you like."""

from __future__ import annotations

import asyncio
import gc
import signal
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from sayso.cli import options
from sayso.cli.exits import Usage
from sayso.errors import InvalidCall
from sayso.threads import leave_soon

if TYPE_CHECKING:
    from sayso.server.metrics import Metrics as Figures
    from sayso.worker import Worker
    from sayso.worker.dispatch_temporal import TemporalDispatch

Targets = Annotated[
    list[str],
    typer.Argument(metavar="MODULE:ATTRIBUTE...", help="Agents, or functions that make one."),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", help="Runs taken further at once.")
]
Dispatch = Annotated[
    str | None,
    typer.Option(
        "--dispatch",
        metavar="URL",
        help="Let Temporal bring due runs here: temporal://host:port[/namespace].",
    ),
]
Port = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        help="Serve /metrics and /healthz there, on loopback unless an address is given.",
    ),
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log as JSON, one object per line.")]


def worker(
    targets: Targets,
    concurrency: Concurrency = 8,
    dispatch: Dispatch = None,
    metrics: Port = None,
    log_json: LogJson = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Take due runs of these agents further, and close what expires, until it is stopped.

    Start as many as you like, beside `sayso serve --workers 0`, and kill any of them. SIGTERM
    and Ctrl-C let what is being run pause or end first; a second Ctrl-C does not.
    """
    from sayso.cli.agents import load_together
    from sayso.server.logs import Log, begin_logging

    if concurrency < 1:
        raise Usage(f"--concurrency {concurrency}: a worker takes at least one run at a time")
    begin_logging(Log.JSON if log_json else Log.TEXT)
    kept, agents = load_together(targets, store)
    if kept.url.startswith("memory:"):
        raise Usage("memory:// ends with its process, which no worker sees: give --store")
    with closing(kept):

        async def work() -> None:
            from sayso.server.metrics import Metrics
            from sayso.worker import Worker

            figures = Metrics()
            alone = Worker(agents, kept, concurrency=concurrency, on_step=figures.step)
            working = alone if dispatch is None else _dispatched(alone, dispatch)
            loop = asyncio.get_running_loop()
            stops = _Stops(working)
            loop.add_signal_handler(signal.SIGTERM, working.stop)
            loop.add_signal_handler(signal.SIGINT, stops.interrupted)
            names = ", ".join(agent.name for agent in agents)
            via = "" if dispatch is None else f", dispatch: {dispatch}"
            gc.freeze()
            gc.enable()
            with _watched(metrics, alone, figures) as where:
                at = "" if where is None else f", metrics: {where}/metrics"
                print(f"Working for {names}  (store: {kept.url}{via}{at})", flush=True)
                await working.run()
            if stops.cut:
                leave_soon()

        asyncio.run(work())


class _Stops:
    """What Ctrl-C does: stop in good order; the second time, cut short what is at work."""

    def __init__(self, working: Worker | TemporalDispatch) -> None:
        self._working = working
        self._stopping = False
        self.cut = False

    def interrupted(self) -> None:
        """Another Ctrl-C."""
        if self._stopping:
            self.cut = True
            self._working.cut_short()
        else:
            self._stopping = True
            self._working.stop()


def _watched(
    given: str | None, worker: Worker, figures: Figures
) -> AbstractContextManager[str | None]:
    """A port to watch the worker at, if one is wanted."""
    if given is None:
        return nullcontext()
    from sayso.server.worker_port import address_of, worker_port

    try:
        return worker_port(address_of(given), worker, figures)
    except InvalidCall as error:
        raise Usage(f"--metrics {error}") from None


def _dispatched(worker: Worker, url: str) -> TemporalDispatch:
    try:
        from sayso.worker.dispatch_temporal import Address, TemporalDispatch
    except ImportError:
        message = f'--dispatch {url}: Temporal is not installed: pip install "sayso[temporal]"'
        raise Usage(message) from None
    try:
        return TemporalDispatch(worker, Address.of(url))
    except InvalidCall as error:
        raise Usage(f"--dispatch {error}") from None
