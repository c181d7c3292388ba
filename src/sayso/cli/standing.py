"""``sayso grants`` and ``sayso token``: standing yeses, and who may act."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from sayso.cli import options, views
from sayso.cli.exits import Usage
from sayso.cli.opening import caller, opened
from sayso.errors import NotFound
from sayso.inbox import Inbox, create_token, revoke_token

Role = Literal["agent", "chat", "reviewer", "admin"]
All = Annotated[bool, typer.Option("--all", help="Also those that are over or revoked.")]

grants = typer.Typer(help="List or revoke standing yeses.", rich_markup_mode=None)
tokens = typer.Typer(
    help="Create, list or revoke tokens.", no_args_is_help=True, rich_markup_mode=None
)


@grants.callback(invoke_without_command=True)
def grants_default(
    ctx: typer.Context,
    every: All = False,
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """List the standing yeses, or revoke one."""
    if ctx.invoked_subcommand is None:
        list_grants(every, json, plain, store)


@grants.command("list")
def list_grants(
    every: All = False,
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """List the standing yeses; `sayso grants` alone does the same."""
    with opened(store) as box:
        found = box.grants_sync(live_only=not every)
        if json:
            views.print_json([views.grant_json(box, grant) for grant in found])
        else:
            views.show_grants(box, found, plain=plain)


@grants.command("revoke")
def revoke_grant(
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="The grant, or how its id begins.")],
    json: options.AsJson = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """End a standing yes."""
    with opened(store) as box:
        who = caller(box, token_file).must_be("reviewer", "admin")
        ids = [grant.id for grant in box.grants_sync(live_only=False)]
        grant = box.revoke_sync(_one(ids, grant_id, "grant", "sayso grants"), by=who.name)
        if json:
            views.print_json(views.grant_json(box, grant))
        else:
            typer.echo(f"{grant.id} is revoked.")


def _one(ids: list[str], prefix: str, noun: str, where: str) -> str:
    fitting = [one for one in ids if prefix and one.startswith(prefix)]
    if prefix in fitting or len(fitting) == 1:
        return prefix if prefix in fitting else fitting[0]
    if not fitting:
        raise NotFound(f"no {noun} {prefix!r}: see `{where}`")
    raise NotFound(f"{prefix!r} is how several ids begin: {', '.join(fitting)}")


@tokens.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")],
    role: Annotated[
        Role, typer.Option("--role", metavar=options.choices(Role), help="What it is for.")
    ] = "reviewer",
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="A group of that person; may be repeated."),
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long it is good, such as 30d.")
    ] = None,
    json: options.AsJson = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Make a token for a person or an agent; it is shown once and kept nowhere."""
    lasts = options.duration(length, "--for")
    if not name.strip():
        raise Usage("a token belongs to somebody: give a name")
    with opened(store, create=True) as box:
        who = caller(box, token_file).must_be("admin")
        ends = None if lasts is None else box.store.now() + round(lasts * 1_000_000)
        token, row = create_token(
            box.store, name, by=who.name, role=role, groups=group or (), ends=ends
        )
        if json:
            views.print_json({"token": token, **views.token_json(row, box.store.now())})
            return
        typer.echo(token)
        print(f"{row.id}: shown once, keep it in a file of mode 0600", file=sys.stderr)


@tokens.command("list")
def list_tokens(
    every: All = False,
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """List who holds tokens."""
    with opened(store) as box:
        now = box.store.now()
        found = [token for token in box.store.principals() if every or token.live(now)]
        if json:
            views.print_json([views.token_json(token, now) for token in found])
        else:
            views.show_tokens(found, now, plain=plain)


@tokens.command("revoke")
def revoke(
    token_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="The id, how it begins, or a name with one live token."),
    ],
    json: options.AsJson = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """End a token."""
    with opened(store) as box:
        who = caller(box, token_file).must_be("admin")
        row = revoke_token(box.store, _token(box, token_id), by=who.name)
        if json:
            views.print_json(views.token_json(row, box.store.now()))
        else:
            typer.echo(f"{row.id} is revoked.")


def _token(box: Inbox, wanted: str) -> str:
    """The id of a token by its id, by how that begins, or by whose it is."""
    every, now = box.store.principals(), box.store.now()
    named = [token.id for token in every if token.person == wanted and token.live(now)]
    if len(named) > 1:
        raise NotFound(f"{wanted!r} has several tokens, name one of them: {', '.join(named)}")
    if named:
        return named[0]
    return _one([token.id for token in every], wanted, "token", "sayso token list")
