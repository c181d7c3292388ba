"""``sayso policy check``: which rule a call would meet, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from sayso import text
from sayso.channels.layout import Line, name
from sayso.channels.screen import console, show
from sayso.cli import options, views
from sayso.cli.exits import Usage
from sayso.gate.policies import read_policy
from sayso.policy import Explanation, Policy, explain
from sayso.types import Terms, ToolCall, Verdict

policy = typer.Typer(help="Read a policy file.", no_args_is_help=True, rich_markup_mode=None)


@policy.callback()
def group() -> None:
    """Read a policy file."""


@policy.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file, in TOML.")],
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="The tool that is called.")
    ] = None,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="Its arguments: JSON, @file or -.")
    ] = "{}",
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help="The agent that calls it.")
    ] = "gate",
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="When, such as 2026-03-31T17:30.")
    ] = None,
    needs_approval: Annotated[
        bool, typer.Option("--needs-approval", help="The tool itself asks for approval.")
    ] = False,
    json: options.AsJson = False,
    plain: options.Plain = False,
) -> None:
    """Check a policy file; with --tool, say which rule a call would meet, and why."""
    rules = read_policy(file)
    if tool is None:
        _print(_summary(rules, file), rules_json(rules), json=json, plain=plain)
        return
    given = options.json_value(args, "--args")
    if not isinstance(given, dict):
        raise Usage("--args: give one JSON object")
    now = datetime.now(UTC) if at is None else options.point_in_time(at, "--at")
    found = explain(
        rules, ToolCall(tool, given), agent=agent, now=now, needs_approval=needs_approval
    )
    _print(_lines(found, tool), explanation_json(found), json=json, plain=plain)


def _print(lines: Iterator[Line], value: Any, *, json: bool, plain: bool) -> None:
    if json:
        views.print_json(value)
    else:
        show(console(plain=plain), lines)


def _summary(rules: Policy, file: Path) -> Iterator[Line]:
    count = f"{len(rules.rules)} rule" + "s" * (len(rules.rules) != 1)
    yield Line(f"{name(str(file))}: {count}, digest {rules.digest}")
    for number, rule in enumerate(rules.rules, 1):
        tools = ", ".join(map(name, rule.tool))
        yield Line(f"{name(rule.name or f'rule {number}')}: {rule.verdict} {tools}", "", "  ")
    yield Line("Say --tool NAME to see which of them a call would meet.", "dim")


def rules_json(rules: Policy) -> dict[str, Any]:
    """A policy file that could be read, ready for JSON."""
    named = [rule.name or f"rule {number}" for number, rule in enumerate(rules.rules, 1)]
    return {"digest": rules.digest, "rules": named}


def _lines(found: Explanation, tool: str) -> Iterator[Line]:
    terms = found.terms
    verbs = {Verdict.ALLOW: "runs", Verdict.ASK: "is asked about", Verdict.DENY: "is forbidden"}
    yield Line(f"{name(tool)} {verbs[terms.verdict]}: {name(terms.rule)}", "bold")
    yield Line(f"effect: {terms.effect}", "", "  ")
    if terms.verdict is Verdict.ASK:
        yield from (Line(words, "", "  ") for words in _terms(terms))
    if terms.description:
        yield Line(text.inline(terms.description), "", "  │ ")
    if not found.certain:
        words = "An async predicate was left out: at run time another rule may decide."
        yield Line(words, "bold yellow", "! ", "bold yellow")
    yield Line("Why", "bold")
    for step in found.steps:
        sign = "✓" if step.matched else "-"
        yield Line(f"{name(step.rule)}: {text.inline(step.why)}", "", f"  {sign} ")


def _terms(terms: Terms) -> Iterator[str]:
    yield f"answers: {' or '.join(terms.allowed)}"
    yield f"decides: {', '.join(map(name, terms.reviewers)) or 'anybody'}, quorum {terms.quorum}"
    yield f"risk: {terms.risk.level}" + "".join(f"; {text.inline(r)}" for r in terms.risk.reasons)
    yield f"requester may decide: {'yes' if terms.requester_decides else 'no'}"
    yield f"least assurance: {terms.assurance}"
    if terms.expires_in is not None:
        yield f"expires after {terms.expires_in:g} s, then: {terms.on_expiry}"


def explanation_json(found: Explanation) -> dict[str, Any]:
    """An explanation, ready for JSON."""
    return {
        "verdict": str(found.terms.verdict),
        "rule": found.terms.rule,
        "certain": found.certain,
        "terms": {**asdict(found.terms), "verdict": str(found.terms.verdict)},
        "steps": [asdict(step) for step in found.steps],
    }
