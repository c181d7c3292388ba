"""Suggestions: what people could stop being asked about, judging by what they decided.

After ten equal approvals, the inbox offers a grant for calls like them. Approvals are equal if they
are of one agent, one version of a tool, one risk and the same reviewers and facts, and if a pattern
over the arguments covers them: the same value, one of a few, a number up to the largest one, a file
in the same folder, or a parsed command (``decisions.grant_scopes``). The narrowest pattern counts.

There is no suggestion for a pattern that covers a call which people rejected, edited or answered,
at any time; for risk high or above, or a risk that nobody declared; for what this person could not
have decided alone; and for calls with masked values. The same calls always make the same
suggestions.

The newest approvals are read, and every closed request of the tools that they suggest, if it was
not approved. Nothing is stored until a person accepts.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any, Literal, NamedTuple

from sayso import codec
from sayso.engine.deciding import check_reviewer
from sayso.engine.grants import DECLARED, GIVEN_UNDER, covers, facts_of, in_scope
from sayso.engine.people import own_names
from sayso.errors import InvalidDecision, NotAllowed
from sayso.inbox.decisions import call_has_secrets, grant_scope, grant_scopes, new_grant
from sayso.inbox.replay import Replay, as_asked_first
from sayso.policy.condition import ArgPath, is_number
from sayso.rows import Call, Proven, Tool
from sayso.stores.base import Query, Store, matches_scope
from sayso.types import (
    HIGH_RISKS,
    SECOND,
    Grant,
    Json,
    Request,
    Terms,
    Verdict,
    moment,
)

#: How many equal approvals make a suggestion.
LEAST = 10
#: For how many seconds a suggested grant lasts.
ENDS_IN = 30 * 86_400.0
#: Among how many of the newest approvals equal ones are looked for, and how old they are at most.
_MOST_READ = 5_000
_OLDEST = 90 * 86_400 * SECOND
_PAGE = 500
#: How many different values a pattern names at most: of texts, and of other values.
_MOST_TEXTS = 5
#: Parts of paths that may lead out of a folder: ``%2e%2e`` does where a server decodes the path.
_UNCLEAR = ("/.", "//", "\\", "%")
_MOST_VALUES = 3
#: How people closed requests that they did not approve as they were.
_AGAINST = ("rejected", "edited", "responded")

#: Applies the policy as it is now; None if it is not known here.
Judge = Callable[[Call, Mapping[str, Any]], Terms] | None
PatternKind = Literal["same", "one_of", "at_most", "folder"]


class ArgumentPattern(NamedTuple):
    """What one argument was in all of the calls."""

    argument: str
    kind: PatternKind
    #: The value, the values, the largest number, or the folder.
    value: Json
    #: Whether all calls had it.
    required: bool = True
    #: The smallest number that it covers, and whether the numbers have to be above it.
    least: float = 0
    above: bool = False

    @property
    def schema(self) -> dict[str, Json]:
        match self.kind:
            case "same":
                return {"const": self.value}
            case "one_of":
                return {"enum": self.value}
            case "at_most":
                lowest = "exclusiveMinimum" if self.above else "minimum"
                return {"type": "number", lowest: self.least, "maximum": self.value}
        return {"type": "string", "pattern": f"{_escaped(str(self.value))}(/[^/.%\\\\][^/%\\\\]*)+"}

    @property
    def sentence(self) -> str:
        """The same in words, for people."""
        value = _json(self.value)
        match self.kind:
            case "same":
                text = f"is {value}"
            case "one_of" if isinstance(self.value, list):
                text = f"is {' or '.join(map(_json, self.value))}"
            case "at_most":
                lowest = "above" if self.above else "at least"
                text = f"is {lowest} {_json(self.least)} and at most {value}"
            case _:
                text = f"is a file in {self.value}/"
        return f"{self.argument} {text}" + ("" if self.required else ", or is left out")

    @property
    def condition(self) -> str:
        """The same as ``where`` of a rule."""
        path = str(ArgPath((self.argument,)))
        value = _json(self.value)
        match self.kind:
            case "same":
                text = f"{path} == {value}"
            case "one_of":
                text = f"{path} in {value}"
            case "at_most":
                lowest = ">" if self.above else ">="
                text = f"{path} {lowest} {_json(self.least)} and {path} <= {value}"
            case "folder":
                unclear = [f"{path} contains {_json(part)}" for part in _UNCLEAR]
                unclear.append(f'{path} endswith "/"')
                text = f"{path} startswith {_json(f'{self.value}/')}"
                text += f" and not ({' or '.join(unclear)})"
        return text if self.required else f"(not {path} exists or ({text}))"


def _json(value: Json) -> str:
    return codec.dumps(value)


def _escaped(text: str) -> str:
    """Escape a text for the pattern of a schema."""
    return "".join(f"\\{c}" if c in ".^$*+?{}[]()|\\" else c for c in text)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A grant that equal decisions suggest, as it would be given by one person now."""

    #: The same for the same agent, tool, risk and pattern.
    id: str
    grant: Grant
    risk: str
    #: What the arguments have in common; empty for commands and files, whose scope says it.
    pattern: tuple[ArgumentPattern, ...]
    #: The newest approvals that it comes from, how many there are, and the newest one's row.
    examples: tuple[Request, ...]
    count: int
    example: Call
    pending: tuple[Request, ...]
    replay: Replay
    #: A rule for a policy file that allows the same calls, or why there is none.
    rule: str
    no_rule: str


class Pattern(NamedTuple):
    """A scope, and the approvals that it covers; the newest one comes first."""

    scope: dict[str, Json]
    arguments: tuple[ArgumentPattern, ...]
    examples: Sequence[Call]


class _Group(NamedTuple):
    """What approvals have in common before their arguments are compared."""

    agent: str
    tool: str
    tool_digest: str
    risk: str
    reviewers: tuple[str, ...]
    facts: str
    has_footprint: bool


def suggested_patterns(
    store: Store, by: Proven, judge: Judge, tool_of: Callable[[Call], Tool | None]
) -> Iterator[tuple[Grant, Pattern]]:
    """Return what a person could allow, each as the grant that they would give now."""
    live_grants = store.grants(live_only=True)
    groups: dict[_Group, list[Call]] = {}
    approved = _closed(store, "approved", since=store.now() - _OLDEST)
    for call in islice(approved, _MOST_READ):
        if _could_decide_alone(call, by, store.now()):
            groups.setdefault(_group(call), []).append(call)
    for group in sorted(groups):
        if len(groups[group]) < LEAST:
            continue
        examples = [
            call
            for call in groups[group]
            if not any(covers(grant, call, matches_scope) for grant in live_grants)
            and not call_has_secrets(call, tool_of(call))
        ]
        if len(examples) < LEAST:
            continue
        against = [
            call for status in _AGAINST for call in _closed(store, status, group.agent, group.tool)
        ]
        against += [call for call in groups[group] if call.refusals]
        find = _footprint_patterns if group.has_footprint else _argument_patterns
        for pattern in find(examples, against, by):
            grant = suggested_grant(pattern, by, store.now())
            if all(covers(grant, call, matches_scope) for call in pattern.examples) and (
                judge is None or _still_asks(pattern.examples, judge)
            ):
                yield grant, pattern


def suggested_grant(pattern: Pattern, by: Proven, now: int, ends_in: float = ENDS_IN) -> Grant:
    """Return a grant for a pattern. It never covers another risk, or one that nobody declared."""
    example = pattern.examples[0]
    grant = new_grant(example, {"scope": pattern.scope, "ends_in": ends_in}, by, now)
    scope = codec.loads(grant.scope)
    under = scope.get(GIVEN_UNDER, {}) | {"risk": example.terms.risk.level, DECLARED: True}
    return replace(grant, scope=codec.dumps({**scope, GIVEN_UNDER: under}))


def suggestion_id(grant: Grant, pattern: Pattern) -> str:
    risk = pattern.examples[0].terms.risk.level
    parts = [grant.agent, grant.tool, grant.tool_digest, risk, grant_scope(grant)]
    return "sug_" + codec.sha256(codec.dumps(parts).encode())[:16]


# -- the approvals


def _closed(
    store: Store, status: str, agent: str | None = None, tool: str | None = None, since: int = 0
) -> Iterator[Call]:
    """Return closed requests with a status, the newest first."""
    query = Query(
        status=status, agent=agent, tool=tool, created_after=since, sort="newest", limit=_PAGE
    )
    while rows := store.page(query):
        yield from (call for _, call in rows)
        query = replace(query, after=rows[-1][0])


def _group(call: Call) -> _Group:
    terms = call.terms
    return _Group(
        agent=call.agent,
        tool=call.tool,
        tool_digest=call.tool_digest,
        risk=terms.risk.level,
        reviewers=terms.reviewers,
        facts=codec.dumps(facts_of(call)),
        has_footprint=bool(terms.footprint),
    )


def _could_decide_alone(call: Call, by: Proven, now: int) -> bool:
    """Return whether this is a tool call of known risk that the person could have approved."""
    terms = call.terms
    decision = call.decision
    is_approval = decision is not None and decision.type == "approve" and call.original is None
    if not is_approval or not call.tool or call.kind != "approval" or not terms.policy:
        return False
    if terms.plan:
        return False  # its approval covers its own steps only
    if not terms.risk_declared or terms.risk.level in HIGH_RISKS or terms.quorum > 1:
        return False
    if by.role not in ("reviewer", "admin") or terms.fresh is not None:
        return False
    if terms.reviewers and own_names(by).isdisjoint(terms.reviewers):
        return False
    try:
        return not check_reviewer(call, by, now)
    except NotAllowed:
        return False


def _still_asks(
    examples: Iterable[Call], judge: Callable[[Call, Mapping[str, Any]], Terms]
) -> bool:
    """Return whether the policy of today asks one person about all of them, at that risk."""
    for call in examples:
        terms = judge(call, codec.loads(call.args))
        risks = (terms.risk_declared, terms.risk.level)
        if terms.verdict is not Verdict.ASK or terms.quorum > 1:
            return False
        if risks != (True, call.terms.risk.level):
            return False
    return True


# -- patterns over arguments


def _argument_patterns(
    examples: Sequence[Call], against: Collection[Call], by: Proven
) -> Iterator[Pattern]:
    """Find patterns in calls. What has none, or covers a call that people did not approve, is
    split by the values of an argument."""
    args = [codec.loads(call.args) for call in examples]
    arguments = _stated(args)
    if arguments is None:
        covered = None
    else:
        scope = _scope(arguments)
        covered = [call for call in against if _matches(scope, call)]
        if not covered:
            yield Pattern(scope, arguments, examples)
            return
    for part in _split(examples, args, covered or []):
        yield from _argument_patterns(part, against, by)


def _stated(args: Sequence[Mapping[str, Json]]) -> tuple[ArgumentPattern, ...] | None:
    """Return what arguments have in common, or None if that cannot be stated."""
    patterns = []
    for name in sorted({name for one in args for name in one}):
        values = [one[name] for one in args if name in one]
        pattern = _argument_pattern(name, values)
        if pattern is None:
            return None
        patterns.append(pattern._replace(required=len(values) == len(args)))
    return tuple(patterns)


def _argument_pattern(name: str, values: Sequence[Json]) -> ArgumentPattern | None:
    different = {codec.dumps(value): value for value in values}
    listed = [different[text] for text in sorted(different)]
    if len(listed) == 1:
        return ArgumentPattern(name, "same", listed[0])
    texts = [value for value in listed if isinstance(value, str)]
    if len(listed) <= (_MOST_TEXTS if len(texts) == len(listed) else _MOST_VALUES):
        return ArgumentPattern(name, "one_of", listed)
    numbers = [value for value in listed if is_number(value)]
    if len(numbers) == len(listed):
        least = min(0, *numbers)
        above = least == 0 and 0 not in numbers
        return ArgumentPattern(name, "at_most", max(numbers), least=least, above=above)
    folder = _common_folder(texts) if len(texts) == len(listed) else ""
    return ArgumentPattern(name, "folder", folder) if folder else None


def _common_folder(paths: Sequence[str]) -> str:
    """Return the folder that all paths are in; "" if they are not plain paths in one folder."""
    for path in paths:
        unclear = any(part in path for part in _UNCLEAR) or path.startswith(".")
        if "/" not in path or path.endswith("/") or unclear:
            return ""
    if len({path.startswith("/") for path in paths}) > 1:
        return ""
    return posixpath.commonpath([posixpath.dirname(path) for path in paths]).rstrip("/")


def _scope(arguments: Iterable[ArgumentPattern]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {pattern.argument: pattern.schema for pattern in arguments},
        "required": [pattern.argument for pattern in arguments if pattern.required],
        "additionalProperties": False,
    }


def _matches(scope: dict[str, Json], call: Call) -> bool:
    """Return whether a scope covers the arguments of a call, before or after an edit."""
    text = codec.dumps(scope)
    return matches_scope(text, call.args) or matches_scope(text, as_asked_first(call).args)


def _split(
    examples: Sequence[Call], args: Sequence[Mapping[str, Json]], covered: Iterable[Call]
) -> list[list[Call]]:
    """Split calls by the values of the argument for which most calls stay in parts that are large
    enough. If no argument does that, keep the calls below the smallest number that people did not
    approve."""
    best: list[list[Call]] = []
    for name in sorted({name for one in args for name in one}):
        parts: dict[str, list[Call]] = {}
        for call, one in zip(examples, args, strict=True):
            parts.setdefault(codec.dumps(one.get(name)), []).append(call)
        large = [parts[value] for value in sorted(parts) if len(parts[value]) >= LEAST]
        if len(parts) > 1 and sum(map(len, large)) > sum(map(len, best)):
            best = large
    return best or _below(examples, args, covered)


def _below(
    examples: Sequence[Call], args: Sequence[Mapping[str, Json]], covered: Iterable[Call]
) -> list[list[Call]]:
    names = sorted({name for one in args for name in one})
    for name in names:
        limits = [
            value
            for call in covered
            for text in {call.args, as_asked_first(call).args}
            if is_number(value := codec.loads(text).get(name))
        ]
        if not limits:
            continue
        part = [
            call
            for call, one in zip(examples, args, strict=True)
            if is_number(value := one.get(name)) and value < min(limits)
        ]
        if LEAST <= len(part) < len(examples):
            return [part]
    return []


# -- commands and files


def _footprint_patterns(
    examples: Sequence[Call], against: Collection[Call], by: Proven
) -> Iterator[Pattern]:
    """Find the narrowest scopes for parsed commands and files."""
    covered_ids: set[str] = set()
    for example in examples:
        if example.id in covered_ids:
            continue
        for scope in _offered_scopes(example):
            grant = new_grant(example, {"scope": scope}, by, 0)
            part = [call for call in examples if covers(grant, call, matches_scope)]
            if any(_is_in_scope(grant, call, part) for call in against):
                break  # wider ones cover it, too
            if len(part) >= LEAST:
                first = [example, *(call for call in part if call.id != example.id)]
                covered_ids |= {call.id for call in part}
                yield Pattern(scope, (), first)
                break


def _offered_scopes(call: Call) -> list[dict[str, Json]]:
    try:
        return grant_scopes(call)
    except InvalidDecision:
        return []


def _is_in_scope(grant: Grant, call: Call, examples: Iterable[Call]) -> bool:
    """Return whether a grant covers a command or a file that people did not approve.

    The footprint of an edited call is that of the new arguments.
    """
    if as_asked_first(call).args in {example.args for example in examples}:
        return True
    if not call.terms.footprint:
        return False
    scope = codec.loads(grant.scope)
    given = scope.pop(GIVEN_UNDER)["footprint"]
    footprint = codec.loads(call.terms.footprint)
    return in_scope(scope, given, footprint, codec.loads(call.args))


# -- the same as a rule


def rule_of(suggestion: str, grant: Grant, pattern: Pattern, tool: Tool | None) -> tuple[str, str]:
    """Return a rule for a policy file that allows what a grant covers, or why there is none."""
    example = pattern.examples[0]
    schema = {} if tool is None else codec.loads(tool.schema)["parameters"]
    if not pattern.arguments and example.terms.footprint:
        return "", "A rule cannot say what a parsed command or a resolved path is: give the grant."
    if facts_of(example) is not None:
        return "", "A rule does not know the facts of binds=, which the grant compares."
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return "", "The tool also takes arguments that it does not name, and a rule cannot."
    named = {argument.argument for argument in pattern.arguments}
    absent = [name for name in schema.get("properties", {}) if name not in named]
    conditions = [argument.condition for argument in pattern.arguments]
    conditions += [f"not {ArgPath((name,))} exists" for name in absent]
    ends = (moment(grant.created) + timedelta(seconds=ENDS_IN)).date()
    lines = [
        f"# Suggested by {len(pattern.examples)} equal approvals. Put it below your rules that",
        "# deny, and above the rule that asks.",
        "[[rule]]",
        f"name = {_toml(suggestion)}",
        f"tool = {_toml(_exact_glob(grant.tool))}",
        f"agent = {_toml(_exact_glob(grant.agent))}",
    ]
    if conditions:
        lines.append(f"where = {_toml(' and '.join(conditions))}")
    lines += [
        'verdict = "allow"',
        f"risk = {_toml(example.terms.risk.level)}",
        f"until = {_toml(ends.isoformat())}",
    ]
    return "\n".join(lines) + "\n", ""


def _exact_glob(name: str) -> str:
    """Return the glob that matches this name only."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _toml(text: str) -> str:
    """Return a basic string of TOML."""
    return codec.dumps(text).replace("\x7f", "\\u007f")
