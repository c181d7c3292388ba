"""``sayso people``: add people and agents, change what they may do, and take it away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from sayso import text
from sayso.channels.layout import Line, name
from sayso.cli import common, output
from sayso.cli.admin import Role
from sayso.cli.common import Usage, as_admin, reading
from sayso.errors import NotFound
from sayso.inbox import TakenAway, add_person, change_person, remove_person, set_stand_in
from sayso.rows import Person
from sayso.stores.base import Store
from sayso.types import SECOND, Micros, micros_of
from sayso.views import person_json

people = typer.Typer(
    help="Add people and agents, change their rights, or remove them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The person or agent.")]


@people.command("add")
def add(
    person: Name,
    role: Annotated[
        Role, typer.Option("--role", metavar=common.choices(Role), help="What they may do.")
    ] = "reviewer",
    admin: Annotated[bool, typer.Option("--admin", help="The same as --role admin.")] = False,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="A group; repeatable.")
    ] = None,
    mail: Annotated[str, typer.Option("--mail", metavar="ADDRESS", help="An e-mail address.")] = "",
    restore: Annotated[
        bool, typer.Option("--restore", help="Bring back the same person, who was removed.")
    ] = False,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Add a person or an agent. Give them a token with `sayso token create`."""
    with as_admin(store, token_file, create=True) as (box, by):
        added = add_person(
            box.store,
            person,
            by=by,
            role="admin" if admin else role,
            groups=group or (),
            mail=mail,
            restore=restore,
        )
        output.emit(person_json(added), f"Added {name(added.name)}, {added.role}.", json=json)


@people.command("list")
def list_people(
    every: Annotated[bool, typer.Option("--all", help="Include removed ones.")] = False,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """List people and agents, and what they may do."""
    with reading(store) as box:
        listed = [person for person in box.store.people() if every or person.active]
        lines = [line for person in listed for line in _person_lines(person, box.store.now())]
        lines = lines or [Line("Nobody yet. Add people with `sayso people add NAME`.")]
        output.emit([person_json(person) for person in listed], lines, json=json, plain=plain)


@people.command("show")
def show(
    person: Name,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Show a person or an agent with their tokens and sessions."""
    with reading(store) as box:
        row = _existing(box.store, person)
        now = box.store.now()
        live = [token for token in box.store.credentials(row.name) if token.live(now)]
        lines = [*_person_lines(row, now), *output.token_lines(live, box.store)]
        tokens = [output.token_json(token, box.store) for token in live]
        output.emit({**person_json(row), "tokens": tokens}, lines, json=json, plain=plain)


@people.command("groups")
def groups(
    person: Name,
    add: Annotated[
        list[str] | None, typer.Option("--add", metavar="GROUP", help="Add them; repeatable.")
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="GROUP", help="Take them out; repeatable."),
    ] = None,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Change the groups of a person, now and in every session. Lists what ended with it."""
    if not add and not remove:
        raise Usage("say what to change: --add GROUP or --remove GROUP")
    with as_admin(store, token_file) as (box, by):
        taken_away = change_person(
            box.store, person, by=by, add_groups=add or (), remove_groups=remove or ()
        )
        _emit_taken_away(taken_away, box.store, json=json)


@people.command("role")
def role(
    person: Name,
    role: Annotated[Role, typer.Argument(metavar=common.choices(Role), help="What they may do.")],
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Change the role of a person. A token never allows more than when it was created."""
    with as_admin(store, token_file) as (box, by):
        taken_away = change_person(box.store, person, by=by, role=role)
        _emit_taken_away(taken_away, box.store, json=json)


@people.command("link")
def link(
    person: Name,
    issuer: Annotated[str, typer.Argument(metavar="ISSUER", help="The OpenID provider.")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Its id of the person.")],
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Let a person sign in with an account of the OpenID provider."""
    with as_admin(store, token_file) as (box, by):
        linked = change_person(box.store, person, by=by, account=(issuer, subject)).person
        output.emit(person_json(linked), f"Linked {name(linked.name)}.", json=json)


@people.command("away")
def away(
    person: Name,
    stand_in: Annotated[
        str | None,
        typer.Option("--stand-in", metavar="NAME", help="Who decides for them meanwhile."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="A date or time, or a duration such as 3d."),
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="They are back: end it now.")] = False,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Let another person decide for one who is away."""
    if back == bool(stand_in and until):
        raise Usage("give --stand-in NAME and --until TIME, or --back")
    with as_admin(store, token_file) as (box, by):
        end = None if until is None else _end(until, box.store.now())
        row = set_stand_in(box.store, person, stand_in or "", end, by=by)
        output.emit(person_json(row), _person_lines(row, box.store.now()), json=json)


def _end(until: str, now: Micros) -> Micros:
    if "-" in until:
        return micros_of(common.point_in_time(until, "--until"))
    return now + round((common.duration(until, "--until") or 0) * SECOND)


@people.command("remove")
def remove(
    person: Name,
    ask_again: Annotated[
        bool,
        typer.Option("--ask-again", help="Ask again about calls they approved and that wait."),
    ] = False,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Remove a person or an agent, with all that they could do. Lists what ended with it.

    Tokens and sessions end, votes on pending requests are void, and grants are revoked. Calls that
    they approved still run, unless you use --ask-again.
    """
    with as_admin(store, token_file) as (box, by):
        taken_away = remove_person(box.store, person, by=by, ask_again=ask_again)
        _emit_taken_away(taken_away, box.store, json=json, asked_again=ask_again)


def _existing(store: Store, named: str) -> Person:
    person = store.person(named)
    if person is None or person.name != named:
        raise NotFound(f"no person or agent {named!r}: see `sayso people list`")
    return person


def _emit_taken_away(
    ended: TakenAway, store: Store, *, json: bool, asked_again: bool = False
) -> None:
    value: dict[str, Any] = {
        **person_json(ended.person),
        "ended": {
            "tokens": [token.id for token in ended.credentials],
            "grants": [grant.id for grant in ended.grants],
            "votes": [call.id for call in ended.votes],
        },
        "approved": [call.id for call in ended.approved],
        "asked_again": asked_again,
    }
    output.emit(value, list(_ended_lines(ended, store.now(), asked_again)), json=json)


def _ended_lines(ended: TakenAway, now: Micros, asked_again: bool) -> Iterator[Line]:
    yield from _person_lines(ended.person, now)
    for noun, ids in (
        ("ended tokens and sessions", [token.id for token in ended.credentials]),
        ("revoked grants", [grant.id for grant in ended.grants]),
        ("void votes", [call.id for call in ended.votes]),
        (
            "asked about again" if asked_again else "approved and waiting to run",
            [call.id for call in ended.approved],
        ),
    ):
        if ids:
            yield Line(f"{noun}: {', '.join(ids)}", "", "  ")


def _person_lines(person: Person, now: Micros) -> Iterator[Line]:
    in_groups = f" in {', '.join(map(name, person.groups))}" if person.groups else ""
    mail = f" <{text.inline(person.mail)}>" if person.mail else ""
    state = "" if person.active else ", removed"
    yield Line(f"{name(person.name)}{mail}, {person.role}{in_groups}{state}", "bold")
    if person.away_until is not None and person.has_stand_in(person.stand_in, now):
        until = output.local_time(person.away_until)
        yield Line(f"away until {until}: {name(person.stand_in)} decides", "", "  ")
