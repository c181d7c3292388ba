"""``sayso approve``, ``reject``, ``edit``, ``respond`` and ``cancel``.

In a terminal each shows the request and prompts. A script is never prompted: it names the digest
that it saw, and a missing option ends the command with an exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sayso import codec, text
from sayso.channels.prompt import PromptResult, Review, ask, outcome_of
from sayso.channels.screen import Screen, can_prompt
from sayso.cli import common, output
from sayso.cli.common import Exit, NoReviewer, Usage, caller, exit_of, opened
from sayso.errors import Conflict, InvalidCall
from sayso.inbox import Inbox
from sayso.types import Approve, Decision, Edit, Json, Reject, Request, Respond

Scope = Literal["exact", "any"]


def approve(
    request_id: common.RequestId,
    digest: common.Digest = None,
    always: Annotated[
        Scope | None,
        typer.Option(
            "--always",
            metavar=common.choices(Scope),
            help="Also approve future calls: with exactly these arguments, or with any.",
        ),
    ] = None,
    uses: Annotated[
        int | None,
        typer.Option("--uses", metavar="N", min=1, help="With --always: the number of uses."),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="With --always: how long, such as 8h. Default: a day."
        ),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="LIMIT",
            help='With --always: such as "calls <= 20 per 1h". May be repeated.',
        ),
    ] = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Approve a request.

    The call runs exactly as shown. In a terminal you see the request and confirm; in a script, pass
    --digest. Approving a call in doubt runs it again.
    """
    grant = _grant(always, uses, length, limits)
    decision = None if digest is None else Approve(seen_digest=digest)
    _settle(store, request_id, decision, "", json, plain, token_file, grant)


def reject(
    request_id: common.RequestId,
    message: common.Message = None,
    stop: Annotated[bool, typer.Option("--stop", help="Also cancel the run.")] = False,
    digest: common.Digest = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Reject a request, or decline to answer.

    Nothing runs, and the agent sees your reason. An equal call is rejected too, without asking,
    until the user writes something new. Rejecting a call in doubt records it as failed.
    """
    decision = None
    if stop or message is not None or digest is not None or json or not can_prompt():
        decision = Reject(message or "", stop, seen_digest=digest)
    _settle(store, request_id, decision, "r", json, plain, token_file)


def edit(
    request_id: common.RequestId,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Arguments to change: text, or JSON where the argument is no text. The others "
            "stay.",
        ),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            metavar="JSON",
            help="The arguments to change: JSON, @file, or - for stdin. The others stay.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="An argument to remove. Repeatable."),
    ] = None,
    digest: common.Digest = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Approve a request with changed arguments.

    In a terminal you see what changes and confirm; in a script, pass --digest. Without any changes
    the arguments open in $VISUAL or $EDITOR.
    """
    if not (changes or args is not None or unset):
        _settle(store, request_id, None, "e", json, plain, token_file)
        return
    if digest is None and (json or not can_prompt()):
        raise Usage("a change needs --digest, the digest that you saw: sayso show ID --json")
    replaced = {} if args is None else common.json_object(args)

    def change(request: Request) -> Edit:
        named = dict(_assignment(request, words) for words in changes or ())
        return Edit({**replaced, **named}, unset or (), seen_digest=digest)

    _settle(store, request_id, change, "e", json, plain, token_file)


def _assignment(request: Request, words: str) -> tuple[str, Json]:
    """Parse ``NAME=VALUE``. The value is JSON unless the argument's schema accepts it as text."""
    name, equals, value = words.partition("=")
    if not name or not equals:
        raise Usage(f"{words!r:.80} is no change: write NAME=VALUE")
    from sayso import schema  # imports pydantic, which few commands need

    rules = schema.edit_rules(request.schema or {}, request.args, request.written)
    if rules.get("properties", {}).get(name):
        errors = schema.errors(rules, {**request.editable, name: value})
        if name not in (path for path, _ in errors):
            return name, value
    try:
        return name, codec.parse(value)
    except InvalidCall:
        return name, value  # text, or for the schema to refuse


def respond(
    request_id: common.RequestId,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="JSON", help="The answer: JSON, @file, or - for stdin."),
    ] = None,
    words: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="The answer as plain text.")
    ] = None,
    digest: common.Digest = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Answer a question, or give a tool's result yourself.

    A tool call that you respond to does not run. For a call in doubt, give the result it had.
    """
    if value is not None and words is not None:
        raise Usage("give --value or --text, not both")
    decision = None
    if value is not None:
        decision = Respond(common.json_value(value, "--value"), seen_digest=digest)
    elif words is not None:
        decision = Respond(words, seen_digest=digest)
    _settle(store, request_id, decision, "m", json, plain, token_file)


def cancel(
    target: Annotated[
        str, typer.Argument(metavar="ID|RUN", help="A request's id, or a run's name.")
    ],
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Record it as superseded instead of cancelled.")
    ] = False,
    message: common.Message = None,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Cancel a request, or a whole run.

    Calls that have not started never will. A running call finishes, and its result is recorded.
    """
    with opened(store) as box:
        who = caller(box, token_file).must_be("reviewer", "admin")
        run = box.store.run(target)
        name = run.id if run is not None else box.find_sync(target).id
        before = _state(box, name)
        box.cancel_sync(name, by=who.name, reason=message or "", superseded=superseded)
        after = _state(box, name)
        if before == after:
            raise Conflict(f"{text.inline(name)} is {after}: there was nothing to cancel")
        output.emit({"id": name, "status": after}, f"{name} is {after}.", json=json)


def _state(box: Inbox, name: str) -> str:
    run = box.store.run(name)
    if run is not None:
        return "stopping" if run.stop and run.status == "running" else str(run.status)
    request = box.get_sync(name)
    if request.status in ("approved", "edited", "pending"):
        status = request.execution.status
        return {"none": request.status, "ready": request.status}.get(status, status)
    return request.status


def _grant(
    always: str | None, uses: int | None, length: str | None, limits: list[str] | None
) -> dict[str, Any] | None:
    if always is None:
        if uses is not None or length is not None or limits:
            raise Usage("--uses, --for and --limit need --always")
        return None
    grant: dict[str, Any] = {"scope": always}
    if uses is not None:
        grant["uses"] = uses
    if limits:
        grant["limits"] = limits
    if length is not None:
        grant["ends_in"] = common.duration(length, "--for")
    return grant


def _settle(
    store: str,
    request_id: str,
    decision: Decision | Callable[[Request], Edit] | None,
    first: str,
    json: bool,
    plain: bool,
    token_file: Path | None,
    grant: dict[str, Any] | None = None,
) -> None:
    """Decide as the options say. Prompt if they do not, and before an edit without a digest."""
    with opened(store) as box:
        request = box.find_sync(request_id)
        edit = None
        if callable(decision):
            decision = decision(request)
            if decision.seen_digest is None:
                decision, edit = None, decision
        review = caller(box, token_file).review(box, request, grant, edit)
        if decision is None:
            raise typer.Exit(_prompt(review, first, request, json=json, plain=plain))
        done = review.decide(decision)
        outcome = outcome_of(done, decision.type, in_doubt=request.kind == "in_doubt")
        output.emit(output.shown_json(done), f"{request.id}: {outcome}", json=json)


def _prompt(review: Review, first: str, request: Request, *, json: bool, plain: bool) -> Exit:
    """Prompt in the terminal, starting with the key ``first``."""
    if json or not can_prompt():
        raise NoReviewer(
            f"{request.id} needs a decision, and there is no terminal to ask in: use one, or "
            "decide with options (approve and edit need --digest, respond --value or --text)"
        )
    if request.kind == "in_doubt":
        first = {"m": "1", "r": "3"}.get(first, "")
    elif first == "m" and request.question is not None and request.question.options:
        first = ""  # let the person pick an option by number
    with closing(Screen(plain=plain)) as screen:
        result: PromptResult = ask(screen, review, first)
    if result.error is not None:
        return exit_of(result.error)
    if result.how == "closed":
        return Exit.EXPIRED if result.request.status == "expired" else Exit.CONFLICT
    return Exit.OK if result.how == "decided" else Exit.PENDING
