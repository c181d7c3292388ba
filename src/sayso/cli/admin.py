"""Administration: ``sayso grants``, ``token``, ``recover``, ``prune``, ``audit`` and ``policy``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sayso import codec, text
from sayso.channels.layout import Line, name
from sayso.channels.screen import Screen, can_prompt
from sayso.cli import common, output
from sayso.cli.common import Exit, NoReviewer, Usage, as_admin, caller, opened, reading
from sayso.engine.commands import Recover
from sayso.errors import NotFound
from sayso.gate.gate import read_policy
from sayso.inbox import Inbox, create_token, revoke_token
from sayso.inbox.directory import revoke_tokens
from sayso.inbox.inbox import MAX_PAGE, only_match
from sayso.inbox.replay import replay_json
from sayso.policy import Explanation, Policy, Rule, explain
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.types import (
    HIGH_RISKS,
    SECOND,
    Micros,
    Refusal,
    Risk,
    Terms,
    ToolCall,
    Verdict,
    micros_of,
)

if TYPE_CHECKING:
    from sayso.audit import Checkpoint

Role = Literal["agent", "chat", "reviewer", "admin"]
All = Annotated[bool, typer.Option("--all", help="Include expired and revoked ones.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

grants = typer.Typer(
    help="List and end grants, and rejections that count for equal calls.", rich_markup_mode=None
)
tokens = typer.Typer(
    help="Create, list or revoke tokens.", no_args_is_help=True, rich_markup_mode=None
)


@grants.callback(invoke_without_command=True)
def grants_default(
    ctx: typer.Context,
    every: All = False,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """List and end grants (approvals of future calls) and refusals (rejections of equal calls)."""
    if ctx.invoked_subcommand is None:
        list_grants(every, json, plain, store)


@grants.command("list")
def list_grants(
    every: All = False,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """List grants and refusals. `sayso grants` alone does the same."""
    with reading(store) as box:
        live_grants = box.grants_sync(live_only=not every)
        refusals = _all_refusals(box, live_only=not every)
        value = [output.grant_json(box, grant) for grant in live_grants]
        value += [output.refusal_json(refusal) for refusal in refusals]
        lines = [*output.grant_lines(box, live_grants), *output.refusal_lines(refusals)]
        output.emit(value, lines, json=json, plain=plain)


@grants.command("revoke")
def revoke_grant(
    grant_id: Annotated[
        str, typer.Argument(metavar="ID", help="The grant's id, or the start of it.")
    ],
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Revoke a grant."""
    with opened(store) as box:
        who = caller(box, token_file).must_be("reviewer", "admin")
        ids = [grant.id for grant in box.grants_sync(live_only=False)]
        grant = box.revoke_sync(only_match(ids, grant_id, "grant", "sayso grants"), by=who.name)
        output.emit(output.grant_json(box, grant), f"Revoked {grant.id}.", json=json)


@grants.command("lift")
def lift_refusal(
    refusal_id: Annotated[
        str, typer.Argument(metavar="ID", help="The refusal's id, or the start of it.")
    ],
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Lift a refusal: people are asked about an equal call again."""
    with opened(store) as box:
        who = caller(box, token_file).must_be("reviewer", "admin")
        ids = [refusal.id for refusal in _all_refusals(box, live_only=False)]
        full_id = only_match(ids, refusal_id, "refusal", "sayso grants")
        refusal = box.lift_refusal_sync(full_id, by=who.reviewer)
        output.emit(output.refusal_json(refusal), f"Lifted {refusal.id}.", json=json)


def _all_refusals(box: Inbox, *, live_only: bool) -> list[Refusal]:
    refusals: list[Refusal] = []
    while True:
        after = refusals[-1].id if refusals else None
        page = box.refusals_sync(live_only=live_only, after=after, limit=MAX_PAGE)
        refusals += page
        if len(page) < MAX_PAGE:
            return refusals


@tokens.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person or agent it is for.")],
    role: Annotated[
        Role | None,
        typer.Option(
            "--role",
            metavar=common.choices(Role),
            help="What a new person may do; reviewer if left out.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="A group of a new person; repeatable."),
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long it is valid, such as 30d.")
    ] = None,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Create a token for a person or an agent, and add them if they are new.

    The token is printed once. Only its hash is stored, so save it now.
    """
    lasts = common.duration(length, "--for")
    if not name.strip():
        raise Usage("give the name of a person or an agent")
    with as_admin(store, token_file, create=True) as (box, by):
        ends = None if lasts is None else box.store.now() + round(lasts * SECOND)
        token, row = create_token(box.store, name, by=by, role=role, groups=group, ends=ends)
        if json:
            output.print_json({"token": token, **output.token_json(row, box.store)})
            return
        typer.echo(token)
        print(f"{row.id}: shown only now; save it in a file with mode 0600", file=sys.stderr)


@tokens.command("list")
def list_tokens(
    every: All = False,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """List tokens and their owners."""
    with reading(store) as box:
        now = box.store.now()
        listed = [token for token in box.store.credentials() if every or token.live(now)]
        value = [output.token_json(token, box.store) for token in listed]
        output.emit(value, output.token_lines(listed, box.store), json=json, plain=plain)


@tokens.command("revoke")
def revoke(
    token_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="An id, or the start of one; or a name, for all tokens and sessions."
        ),
    ],
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Revoke a token with the sessions that it opened, or all tokens and sessions of a person."""
    with as_admin(store, token_file) as (box, by):
        every = box.store.credentials()
        token_ids = tuple(token.id for token in every if token.person == token_id)
        if token_ids:
            ended = revoke_tokens(box.store, token_id, token_ids, by=by)
        else:
            ids = [token.id for token in every]
            token = only_match(ids, token_id, "token", "sayso token list")
            ended = revoke_token(box.store, token, by=by)
        value = [output.token_json(row, box.store) for row in ended]
        words = f"Revoked {', '.join(row.id for row in ended)}." if ended else "Nothing was valid."
        output.emit(value, words, json=json)


def recover(
    yes: Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Recover even if the store noticed no restore.")
    ] = False,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Recover after restoring a backup.

    Marks every call that may have run since the backup as in doubt. Nothing starts until you do
    this.
    """
    with as_admin(store, token_file) as (box, by):
        if not box.store.restored() and not force:
            words = (
                "Nothing to recover: the store noticed no restore. If you restored it, use --force."
            )
            output.emit({"recovered": 0}, words, json=json)
            return
        runs = list(box.store.open_runs())
        if not yes:
            what = f"{text.many(len(runs), 'run')} may have made calls since the backup."
            if not can_prompt():
                raise NoReviewer(f"{what} There is no terminal to confirm in: use --yes")
            with closing(Screen()) as screen:
                typed = screen.ask(f"{what} Type recover to continue:")
            if typed is None or typed.pasted or typed.text.strip() != "recover":
                raise typer.Exit(Exit.PENDING)
        doubts = 0
        for run in box.store.open_runs():
            (doubted,) = box.store.transact(Recover(thread=run.thread, run=run.id, by=by.name))
            doubts += len(doubted)
        box.store.mark_recovered()
        words = f"Recovered: {text.many(doubts, 'call')} in doubt."
        output.emit({"recovered": doubts}, words, json=json)


def prune(
    before: Annotated[
        str,
        typer.Option("--before", metavar="TIME", help="An age such as 90d, or a date."),
    ],
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Delete the contents of runs that ended long ago.

    Deletes calls, messages and event bodies. The audit log stays verifiable.
    """
    with as_admin(store, token_file) as (box, by):
        counts = box.store.prune(_cutoff(before, box.store.now()), by.name)
        what = ", ".join(f"{count} {noun}" for noun, count in counts.items())
        output.emit(counts, f"Deleted: {what}.", json=json)


_BEFORE = "--before {!r}: use an age such as 90d or 12h, or a date such as 2026-03-31"


def _cutoff(before: str, now: Micros) -> Micros:
    if before[:1].isdigit() and "-" in before:
        return micros_of(common.point_in_time(before, "--before"))
    if not before[-1:].isalpha():  # elsewhere a bare number is seconds; here that would lose data
        raise Usage(_BEFORE.format(before))
    try:
        age = common.duration(before, "--before") or 0
    except Usage:
        raise Usage(_BEFORE.format(before)) from None
    return now - round(age * SECOND)


#: How much of a column is shown; --json shows all of it.
_MOST_SHOWN = 200

audit = typer.Typer(
    help="Verify, explain or export the audit log.", no_args_is_help=True, rich_markup_mode=None
)


@audit.command("verify")
def verify(
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read how far the audit log was verified before, skip what has not changed since, "
            "and update the file if all is well. Keep it where agents cannot write.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="How many processes share the work; 0 for one per core."
        ),
    ] = 0,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Verify every chain, seal and signature. Exits with code 1 if a row is invalid."""
    from sayso.audit import verify as check

    since = None if checkpoint is None else _read_checkpoint(checkpoint)
    with reading(store) as box:
        # Elsewhere than on Linux, processes cannot be forked safely.
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
        report = check(box.store, since=since, jobs=jobs or cores)
    if checkpoint is not None and report.ok:
        checkpoint.write_text(codec.dumps(report.checkpoint._asdict()) + "\n")
    output.emit(report_json(report), _report_lines(report), json=json, plain=plain)
    raise typer.Exit(Exit.OK if report.ok else Exit.PROBLEM)


def _read_checkpoint(file: Path) -> Checkpoint | None:
    from sayso.audit import Checkpoint

    try:
        return Checkpoint(**codec.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise Usage(
            f"{file} is not a checkpoint ({error}): delete it to verify everything"
        ) from None


def _report_lines(report: Any) -> list[Line]:
    read = f"{text.many(report.events, 'event')} of {text.many(report.threads, 'thread')}"
    read += f", {text.many(report.seals, 'seal')}"
    if report.unmoved:
        read += f"; {text.many(report.unmoved, 'thread')} unchanged since the checkpoint"
    if report.ok:
        if report.unsealed:
            read += f"; {text.many(report.unsealed, 'event')} after the last seal"
        return [Line(f"The audit log is intact: {read}.", "bold green")]
    first, *others = report.problems
    lines = [Line(f"The audit log is broken ({read}). First problem:", "bold red")]
    lines += [Line(text.inline(str(first)), "bold red", "  ")]
    if others:
        lines += [Line("Others:", "bold")]
        lines += [Line(text.inline(str(problem)), "", "  ") for problem in others]
    return lines


def report_json(report: Any) -> dict[str, Any]:
    names = ("ok", "threads", "unmoved", "events", "seals", "unsealed")
    values = {name: getattr(report, name) for name in names}
    return {**values, "problems": [asdict(problem) for problem in report.problems]}


@audit.command("explain")
def explain_request(
    request_id: common.RequestId,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Explain one request: its row, its last event, what differs, and what to do about it.

    Works for a request that other commands refuse. Exits with code 1 if something differs.
    """
    from sayso.audit import explain as explained

    with reading(store) as box:
        ids = box.store.calls_like(request_id, 7)
        # A row that was deleted has events, under its whole id.
        name = only_match(ids, request_id, "request", "sayso inbox") if ids else request_id
        explanation = explained(box.store, name)
    output.emit(explained_json(explanation), _explained_lines(explanation), json=json, plain=plain)
    raise typer.Exit(Exit.OK if explanation.ok else Exit.PROBLEM)


def explained_json(found: Any) -> dict[str, Any]:
    event = found.last_event
    return {
        "id": found.id,
        "ok": found.ok,
        "row": None if found.row is None else {k: _shown(v) for k, v in found.row.items()},
        "last_event": None if event is None else {k: _shown(v) for k, v in event._asdict().items()},
        "differs": list(found.differs),
        "next": found.next_step,
    }


def _shown(value: Any) -> Any:
    """Return a column for JSON; one that was changed may hold bytes."""
    return value if isinstance(value, str | int | float | None) else repr(value)


def _explained_lines(found: Any) -> list[Line]:
    lines = [Line(f"Request {text.inline(found.id)}", "bold")]
    if found.row is None:
        lines.append(Line("Its row is missing.", "bold red", "  "))
    for column, value in (found.row or {}).items():
        if value not in (None, ""):
            lines.append(Line(text.inline(f"{value}")[:_MOST_SHOWN], "", f"  {column}: "))
    event = found.last_event
    if event is not None:
        what = f"{event.type} by {event.actor} (thread {event.thread}, row {event.seq})"
        lines.append(Line(text.inline(what), "", "Last event: "))
    for what in found.differs:
        lines.append(Line(text.inline(what), "bold red", "Differs: "))
    if found.ok:
        lines.append(Line("The row is what its events say.", "bold green"))
    lines.append(Line(text.inline(found.next_step), "bold", "Next: "))
    return lines


@audit.command("prove")
def prove(
    request_id: common.RequestId,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="The file; ID.html in this folder if left out."
        ),
    ] = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Write a page that proves who decided a request with a passkey.

    Any browser checks it offline, without Sayso and its keys. It has the arguments of the call in
    full, masked ones too.
    """
    from sayso.audit import prove as proven

    with reading(store) as box:
        ids = box.store.calls_like(request_id, 7)
        name = only_match(ids, request_id, "request", "sayso inbox")
        page = proven(box.store, name)
    file = output_file or Path(f"{name}.html")
    try:
        file.write_text(page, "utf-8")
    except OSError as error:
        raise Usage(f"{file} cannot be written: {error}") from None
    print(f"Wrote {file}: open it in a browser.")


@audit.command("export")
def export(json: common.AsJson = False, store: common.StoreUrl = common.DEFAULT_STORE) -> None:
    """Print the whole audit log as JSON Lines, with or without --json."""
    from sayso.audit import export as written

    with reading(store) as box:
        for line in written(box.store):
            print(line.rstrip("\n"))


_COLUMNS = "{:<28}  {:<13}  {:<10}  {:<7}  {}"
_DECIDED_BY = {
    "person": "a person",
    "model": "a model",
    "grant": "a grant",
    "window": "trust",
    "plan": "a plan",
    "rule": "a rule",
    "preset": "a preset",
    "": "waits",
}


def coverage(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name in the store.")],
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Show which tools an agent has called in its recorded runs, and what decided each call."""
    with reading(store) as box:
        counts = Counter(map(_gated, _calls_of(box.store, agent)))
    if not counts:
        raise NotFound(f"no recorded run of {agent!r} has called a tool: see `sayso history`")
    values: list[dict[str, Any]] = []
    lines = [Line(_COLUMNS.format("tool", "called", "decided by", "verdict", "calls"), "bold")]
    for (tool, inside, source, denied), number in sorted(counts.items()):
        value = {"tool": tool, "inside": inside, "decided_by": source, "denied": denied}
        values.append({**value, "calls": number})
        where = "inside a call" if inside else "by the agent"
        verdict = "denied" if denied else "allowed" if source else ""
        lines.append(Line(_COLUMNS.format(name(tool), where, _DECIDED_BY[source], verdict, number)))
    output.emit(values, lines, json=json, plain=plain)


def _calls_of(store: Store, agent: str) -> Iterator[Call]:
    after: str | None = None
    while runs := store.runs(agent=agent, after=after, limit=MAX_PAGE):
        for _, run in runs:
            yield from (call for call in store.calls_of(run.id) if call.kind == "approval")
        after = runs[-1][0]


def _gated(call: Call) -> tuple[str, bool, str, bool]:
    """Return the tool, whether another call contains it, what decided, and whether it denied."""
    denied = call.decision is not None and call.decision.type in ("deny", "reject")
    source = "" if call.decision is None else call.source
    return call.tool, "/" in call.key, source, denied


policy = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ToolArgs = Annotated[
    str, typer.Option("--args", metavar="JSON", help="Its arguments: JSON, @file, or - for stdin.")
]
CallingAgent = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="The agent that calls it.")
]


@policy.callback()
def group() -> None:
    """Check a policy, and explain what it says about a call."""


@policy.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file, in TOML.")],
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="A tool to call.")
    ] = None,
    args: ToolArgs = "{}",
    agent: CallingAgent = "gate",
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="The time of the call, such as 2026-03-31T17:30."
        ),
    ] = None,
    needs_approval: Annotated[
        bool | None,
        typer.Option(
            "--needs-approval/--no-needs-approval",
            help="What the tool itself declares.",
            show_default="nothing",
        ),
    ] = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
) -> None:
    """Check a policy file. With --tool, explain which rule applies to a call, and why."""
    rules = read_policy(str(file))
    if tool is None:
        output.emit(rules_json(rules), _summary(rules, file), json=json, plain=plain)
        return
    call_args = common.json_object(args)
    now = datetime.now(UTC) if at is None else common.point_in_time(at, "--at")
    explanation = explain(
        rules, ToolCall(tool, call_args), agent=agent, now=now, needs_approval=needs_approval
    )
    lines = _explanation_lines(explanation, tool)
    output.emit(explanation_json(explanation), lines, json=json, plain=plain)


@policy.command("explain")
def explain_command(
    command: Annotated[
        str | None,
        typer.Argument(metavar="[COMMAND]", help="A shell command of a coding agent."),
    ] = None,
    file: Annotated[
        Path,
        typer.Option(
            "--policy", metavar="FILE", help="A policy file, or watch, balanced or strict."
        ),
    ] = Path("balanced"),
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="A tool other than the shell.")
    ] = None,
    args: ToolArgs = "{}",
    cwd: Annotated[
        str, typer.Option("--cwd", metavar="DIR", help="The working directory.")
    ] = "/src/project",
    agent: CallingAgent = "claude",
    json: common.AsJson = False,
    plain: common.Plain = False,
) -> None:
    """Explain what a policy says about a call of a coding agent, and why.

    Shows each program in a shell command and what it does, then the rule that decides.
    """
    from sayso.hooks.calls import explain_call

    if (command is None) == (tool is None):
        raise Usage("give a shell command, or --tool NAME --args JSON")
    call_args = {"command": command} if tool is None else common.json_object(args)
    called = ToolCall(tool or "Bash", {"cwd": cwd, **call_args})
    now = datetime.now(UTC)
    explanation = explain(read_policy(str(file)), called, agent=agent, now=now)
    parts = explain_call(called.name, called.args)
    parts_json = [{"part": part, "kinds": kinds} for part, kinds in parts]
    value = {**explanation_json(explanation), "parts": parts_json}
    lines = [
        Line(f"{text.inline(part)}: {'; '.join(kind.rstrip('.') for kind in kinds)}", "", "  ")
        for part, kinds in parts
    ]
    lines += _explanation_lines(explanation, called.name)
    output.emit(value, lines, json=json, plain=plain)


@policy.command("replay")
def replay_command(
    file: Annotated[
        Path,
        typer.Argument(metavar="POLICY", help="A policy file, or watch, balanced or strict."),
    ],
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back, such as 12h or 30d.")
    ] = "30d",
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Judge the calls in the store by a policy: what would it have asked, allowed or denied?

    Nothing runs. Exits with 1 if the policy would have run a call that people rejected.
    """
    rules = read_policy(str(file))
    with reading(store) as box:
        seconds = common.duration(since, "--since") or 0
        replay = box.replay_sync(rules, since=seconds)
        value = {"policy": rules.digest, "since": since, **replay_json(replay)}
        output.emit(value, output.replay_lines(replay, str(file), since), json=json, plain=plain)
    if replay.overruled:
        raise typer.Exit(Exit.PROBLEM)


@policy.command("observed")
def observed_command(
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back, such as 12h or 30d.")
    ] = "30d",
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Report what the second policy (`observe`) would have asked, allowed or denied.

    It judged each call when it was made, and decided nothing. Exits with 1 if it would have run a
    call that people rejected.
    """
    with reading(store) as box:
        replay = box.observed_sync(since=common.duration(since, "--since") or 0)
        value = {"since": since, **replay_json(replay)}
        lines = output.replay_lines(replay, "The second policy", since)
        output.emit(value, lines, json=json, plain=plain)
    if replay.overruled:
        raise typer.Exit(Exit.PROBLEM)


def _summary(rules: Policy, file: Path) -> Iterator[Line]:
    yield Line(_default_line(rules.default))
    yield Line("requester may approve their own call: yes, below high risk", "", "    ")
    count = text.many(len(rules.rules), "rule")
    yield Line(f"{name(str(file))}: {count}, digest {rules.digest}")
    for number, rule in enumerate(rules.rules, 1):
        title = name(rule.name or f"rule {number}")
        yield Line(f"{title}: {text.inline(rule.sentence())}", "", "  ")
        if rule.verdict is Verdict.ASK:
            yield Line(f"requester may approve their own call: {_own_calls(rule)}", "", "    ")
    yield Line("Use --tool NAME to see which rule applies to a call.", "dim")


def _default_line(default: Verdict | None) -> str:
    """Say what happens to a call that no rule matches."""
    if default is None:
        return "default: as the tool declares; a tool that declares nothing asks"
    if default is Verdict.ALLOW:
        return "default: allow; a tool that declares needs_approval=True still asks"
    return f"default: {default}, whatever the tool declares"


def _own_calls(rule: Rule) -> str:
    """Say whether the person who asked for a call may approve it under this rule."""
    if rule.requester_decides is not None:
        return "yes" if rule.requester_decides else "no"
    if isinstance(rule.risk, Risk):
        return "no, high risk" if rule.risk.level in HIGH_RISKS else "yes"
    return "yes, below high risk"


def rules_json(rules: Policy) -> dict[str, Any]:
    names = [rule.name or f"rule {number}" for number, rule in enumerate(rules.rules, 1)]
    own = {
        title: _own_calls(rule)
        for title, rule in zip(names, rules.rules, strict=True)
        if rule.verdict is Verdict.ASK
    }
    return {
        "default": rules.default,
        "digest": rules.digest,
        "rules": names,
        "sentences": [rule.sentence() for rule in rules.rules],
        "requester_may_approve": own,
    }


def _explanation_lines(found: Explanation, tool: str) -> Iterator[Line]:
    terms = found.terms
    verbs = {Verdict.ALLOW: "runs", Verdict.ASK: "needs approval", Verdict.DENY: "is denied"}
    yield Line(f"{name(tool)} {verbs[terms.verdict]}: {name(terms.rule)}", "bold")
    yield Line(f"effect: {terms.effect}", "", "  ")
    if terms.verdict is Verdict.ASK:
        yield from (Line(words, "", "  ") for words in _terms(terms))
    if terms.description:
        yield Line(text.inline(terms.description), "", "  │ ")
    if not found.certain:
        words = "An async predicate was not evaluated: at run time another rule may apply."
        yield Line(words, "bold yellow", "! ", "bold yellow")
    yield Line("Why", "bold")
    for step in found.steps:
        sign = "✓" if step.matched else "-"
        yield Line(f"{name(step.rule)}: {text.inline(step.why)}", "", f"  {sign} ")


def _terms(terms: Terms) -> Iterator[str]:
    yield f"decisions: {' or '.join(terms.allowed)}"
    reviewers = " or ".join(map(name, terms.reviewers)) or "anyone"
    yield f"reviewer: {reviewers}, quorum {terms.quorum}"
    yield f"risk: {terms.risk.level}" + "".join(f"; {text.inline(r)}" for r in terms.risk.reasons)
    yield f"requester may decide: {'yes' if terms.requester_decides else 'no'}"
    yield f"minimum assurance: {terms.assurance}"
    if terms.expires_in is not None:
        yield f"expires after {terms.expires_in:g} s, then: {terms.on_expiry}"
    via = ", ".join(map(text.inline, terms.notify_via)) or "every channel of the reviewers"
    yield f"notified at once: {via}"
    if terms.remind_after is not None:
        yield f"reminded after {terms.remind_after:g} s"
    if terms.escalate_after is not None:
        added = " or ".join(map(name, terms.escalate_to))
        yield f"after {terms.escalate_after:g} s, {added} may decide too, and is notified"
    yield "in a person's quiet hours: one digest when they end" + (
        ", or at once when it has escalated"
        if terms.risk.level == "critical" and terms.escalate_after is not None
        else ""
    )


def explanation_json(found: Explanation) -> dict[str, Any]:
    return {
        "verdict": str(found.terms.verdict),
        "rule": found.terms.rule,
        "certain": found.certain,
        "terms": {**asdict(found.terms), "verdict": str(found.terms.verdict)},
        "steps": [asdict(step) for step in found.steps],
    }
