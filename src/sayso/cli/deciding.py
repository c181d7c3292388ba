"""``sayso approve``, ``reject``, ``edit``, ``respond``, ``cancel``: a person's answer.

In a terminal each shows the card and asks. In a script nothing is asked: an approval or an edit
names the digest that was seen, and what is missing ends with an exit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sayso import text
from sayso.channels.desk import Desk
from sayso.channels.prompt import ask
from sayso.channels.screen import Screen, can_prompt
from sayso.channels.talk import Outcome, said
from sayso.cli import options, views
from sayso.cli.exits import Exit, NoReviewer, Usage, exit_of
from sayso.cli.opening import caller, found, opened
from sayso.errors import Conflict
from sayso.inbox import Inbox
from sayso.types import Approve, Decision, Edit, Reject, Request, Respond

Scope = Literal["exact", "any"]


def approve(
    request_id: options.RequestId,
    digest: options.Digest = None,
    always: Annotated[
        Scope | None,
        typer.Option(
            "--always",
            metavar=options.choices(Scope),
            help="Also say yes in future: to exactly these arguments, or to any.",
        ),
    ] = None,
    uses: Annotated[
        int | None, typer.Option("--uses", metavar="N", min=1, help="With --always: how often.")
    ] = None,
    length: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="With --always: how long, such as 8h (a day)."),
    ] = None,
    json: options.AsJson = False,
    plain: options.Plain = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Approve a request: it runs exactly as shown.

    In a terminal the card is shown and you are asked; a script names what it saw with --digest.
    For a call in doubt it means: run it again.
    """
    grant = _grant(always, uses, length)
    decision = None if digest is None else Approve(seen_digest=digest)
    _settle(store, request_id, decision, "", json, plain, token_file, grant)


def reject(
    request_id: options.RequestId,
    message: options.Message = None,
    digest: options.Digest = None,
    json: options.AsJson = False,
    plain: options.Plain = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Reject a request, or refuse to answer.

    Nothing runs, and the agent is told why. A call in doubt is given up.
    """
    decision = None
    if message is not None or digest is not None or json or not can_prompt():
        decision = Reject(message or "", seen_digest=digest)
    _settle(store, request_id, decision, "r", json, plain, token_file)


def edit(
    request_id: options.RequestId,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            metavar="JSON",
            help="The arguments to change, as JSON, @file or - (stdin); the others stay.",
        ),
    ] = None,
    digest: options.Digest = None,
    json: options.AsJson = False,
    plain: options.Plain = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Approve a request with other arguments.

    Without --args they open in $VISUAL or $EDITOR; the changes are shown before they count.
    """
    decision = None
    if args is not None:
        if digest is None:
            raise Usage("--args needs --digest, the digest of what you saw: sayso show ID --json")
        changes = options.json_value(args, "--args")
        if not isinstance(changes, dict):
            raise Usage("--args: give one JSON object")
        decision = Edit(changes, seen_digest=digest)
    _settle(store, request_id, decision, "e", json, plain, token_file)


def respond(
    request_id: options.RequestId,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="JSON", help="The answer as JSON, @file or - (stdin)."),
    ] = None,
    words: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="The answer as plain text.")
    ] = None,
    digest: options.Digest = None,
    json: options.AsJson = False,
    plain: options.Plain = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Answer a question, or give a result instead.

    A tool call that gets a result does not run. A call in doubt is closed with its result.
    """
    if value is not None and words is not None:
        raise Usage("give --value or --text, not both")
    decision = None
    if value is not None:
        decision = Respond(options.json_value(value, "--value"), seen_digest=digest)
    elif words is not None:
        decision = Respond(words, seen_digest=digest)
    _settle(store, request_id, decision, "m", json, plain, token_file)


def cancel(
    target: Annotated[str, typer.Argument(metavar="ID|RUN", help="A request, or a whole run.")],
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Newer input has taken its place.")
    ] = False,
    message: options.Message = None,
    json: options.AsJson = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Call off a request, or a whole run.

    What has not started never will; what is running finishes and is recorded.
    """
    with opened(store) as box:
        who = caller(box, token_file).must_be("reviewer", "admin")
        run = box.store.run(target)
        name = run.id if run is not None else found(box, target).id
        before = _state(box, name)
        box.cancel_sync(name, by=who.name, reason=message or "", superseded=superseded)
        after = _state(box, name)
        if before == after:
            raise Conflict(f"{text.inline(name)} is {after}: there was nothing to call off")
        if json:
            views.print_json({"id": name, "status": after})
        else:
            typer.echo(f"{text.inline(name)} is {after}.")


def _state(box: Inbox, name: str) -> str:
    run = box.store.run(name)
    if run is not None:
        return "stopping" if run.stop and run.status == "running" else str(run.status)
    request = box.get_sync(name)
    if request.status in ("approved", "edited", "pending"):
        status = request.execution.status
        return {"none": request.status, "ready": request.status}.get(status, status)
    return request.status


def _grant(always: str | None, uses: int | None, length: str | None) -> dict[str, Any] | None:
    if always is None:
        if uses is not None or length is not None:
            raise Usage("--uses and --for go with --always")
        return None
    grant: dict[str, Any] = {"scope": always}
    if uses is not None:
        grant["uses"] = uses
    if length is not None:
        grant["ends_in"] = options.duration(length, "--for")
    return grant


def _settle(
    store: str,
    request_id: str,
    decision: Decision | None,
    first: str,
    json: bool,
    plain: bool,
    token_file: Path | None,
    grant: dict[str, Any] | None = None,
) -> None:
    """Decide as the options say; without them, ask in the terminal."""
    with opened(store) as box:
        request = found(box, request_id)
        desk = caller(box, token_file).desk(box, request, grant)
        if decision is None:
            raise typer.Exit(_asked(desk, first, request, json=json, plain=plain))
        if isinstance(decision, Edit):
            decision = Edit({**request.args, **decision.args}, seen_digest=decision.seen_digest)
        done = desk.decide(decision)
        if json:
            views.print_json(views.shown_json(done))
        else:
            doubt = request.kind == "in_doubt"
            typer.echo(f"{text.inline(request.id)}: {said(done, decision.type, in_doubt=doubt)}")


def _asked(desk: Desk, first: str, request: Request, *, json: bool, plain: bool) -> Exit:
    """Ask in the terminal, if there is one and no script reads along."""
    if json or not can_prompt():
        raise NoReviewer(
            f"nobody can be asked here about {request.id}: run it in a terminal, or decide with "
            "options (approve and edit need --digest, respond --value or --text)"
        )
    if first == "m" and request.question is not None and request.question.options:
        first = ""  # the options are there to be picked by number
    screen = Screen(plain=plain)
    try:
        return exit_after(ask(screen, desk, _key(first, request)))
    finally:
        screen.close()


def _key(first: str, request: Request) -> str:
    """A doubt has keys of its own."""
    return {"m": "1", "r": "3"}.get(first, "") if request.kind == "in_doubt" else first


def exit_after(outcome: Outcome) -> Exit:
    """The exit code for how a talk ended."""
    if outcome.error is not None:
        return exit_of(outcome.error)
    if outcome.how == "closed":
        return Exit.EXPIRED if outcome.request.status == "expired" else Exit.CONFLICT
    return Exit.OK if outcome.how == "decided" else Exit.PENDING
