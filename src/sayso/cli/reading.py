"""``sayso inbox``, ``show`` and ``history``: what waits, what it is, what was decided."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sayso.channels.card import background, card, utc_now
from sayso.channels.desk import Desk
from sayso.channels.layout import Line
from sayso.channels.screen import console, show
from sayso.cli import options, views
from sayso.cli.opening import caller, found, opened
from sayso.codec import loads
from sayso.rows import Event
from sayso.types import moment

Decide = Annotated[
    bool, typer.Option("--decide", help="Go through them one by one, or several at once.")
]


def inbox(
    kind: options.KindFilter = None,
    agent: options.AgentFilter = None,
    tool: options.ToolFilter = None,
    thread: options.ThreadFilter = None,
    run: options.RunFilter = None,
    q: options.TextFilter = None,
    sort: options.SortOrder = "oldest",
    limit: options.Limit = 50,
    after: options.After = None,
    decide: Decide = False,
    json: options.AsJson = False,
    plain: options.Plain = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """List the requests that wait for a person."""
    filters = _filters(kind, agent, tool, thread, run, q, sort, limit, after)
    with opened(store) as box:
        if decide:
            from sayso.cli.walk import walk

            raise typer.Exit(walk(box, caller(box, token_file), filters, plain=plain))
        page = box.pending_sync(**filters)
        if json:
            views.print_json(views.page_json(page))
            return
        views.show_page(page, plain=plain, empty="Nothing is waiting.")
        if page.items:
            hint = "To decide: sayso inbox --decide"
            show(console(plain=plain), [Line(hint, "dim")])


def history(
    status: options.StatusFilter = "closed",
    kind: options.KindFilter = None,
    agent: options.AgentFilter = None,
    tool: options.ToolFilter = None,
    thread: options.ThreadFilter = None,
    run: options.RunFilter = None,
    q: options.TextFilter = None,
    sort: options.SortOrder = "newest",
    limit: options.Limit = 50,
    after: options.After = None,
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """List the requests that were decided or closed, newest first."""
    filters = _filters(kind, agent, tool, thread, run, q, sort, limit, after)
    with opened(store) as box:
        page = box.history_sync(status=status, **filters)
        if json:
            views.print_json(views.page_json(page))
        else:
            views.show_page(page, plain=plain, empty="Nothing was decided yet.")


def show_request(
    request_id: options.RequestId,
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Show one request, whole, with its history."""
    with opened(store) as box:
        request = found(box, request_id)
        desk = Desk(box, request.id)
        events = desk.events()
        if json:
            views.print_json({**views.shown_json(request), "events": list(map(event_json, events))})
            return
        lines = card(request, utc_now())
        lines += background(request, events, desk.earlier(request))
        show(console(plain=plain), lines)


def event_json(event: Event) -> dict[str, Any]:
    """One fact, ready for JSON; a body that was pruned is null."""
    return {
        "at": moment(event.at).isoformat(),
        "type": event.type,
        "actor": event.actor,
        "body": None if event.body is None else loads(event.body),
    }


def _filters(*values: Any) -> dict[str, Any]:
    """The filters that were given, by the names that the inbox knows."""
    names = ("kind", "agent", "tool", "thread", "run", "q", "sort", "limit", "after")
    pairs = zip(names, values, strict=True)
    return {name: value for name, value in pairs if value is not None}
