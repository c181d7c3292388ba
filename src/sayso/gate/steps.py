"""Plans: several exact calls that people approve at once.

A plan is a request whose arguments are its steps: the tool of each call with its digest, its
arguments, its title, its risk, and the facts that it is bound to. So the digest of the request
covers the whole list. This module makes the request, from calls that were not made yet.
``sayso.inbox.decisions`` reads it back when people decide it, and ``sayso.engine.grants`` says what
the approval covers.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sayso import codec
from sayso.engine.grants import PLAN_TOOL, plan_risk
from sayso.errors import InvalidCall
from sayso.gate.options import AskOptions, allow_only, checked_name, fixed_title, own_terms
from sayso.gate.plan import Plan
from sayso.policy import tighten
from sayso.rows import Call, Tool
from sayso.types import Json, Terms, ToolCall, Verdict

if TYPE_CHECKING:
    from sayso.gate.scope import RunScope

MOST_STEPS = 50
_DECISIONS = ("approve", "edit", "reject")
_TITLE = "Run a plan"
_SHARED = "#/$defs/"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTool:
    """A tool whose calls can be steps."""

    stored: Tool
    #: Returns the arguments as they are stored when the call is made. Raises ``InvalidCall``.
    read: Callable[[dict[str, Json]], str]
    terms: Callable[[dict[str, Any]], Awaitable[Terms]]
    binds: Callable[[], str]
    title: Callable[[str], str] | None


class _Planned(NamedTuple):
    """A step and its terms when it is proposed."""

    tool: StepTool
    args: str
    terms: Terms

    @property
    def content(self) -> dict[str, Json]:
        """What people see of it."""
        title = "" if self.tool.title is None else self.tool.title(self.args)
        binds = self.tool.binds()
        optional: dict[str, Json] = {
            "title": title or None,
            "facts": codec.loads(binds) if binds else None,
            "allowed": True if self.terms.verdict is Verdict.ALLOW else None,
        }
        return {
            "tool": self.tool.stored.name,
            "args": codec.loads(self.args),
            "risk": plan_risk(self.terms),
            "tool_digest": self.tool.stored.digest,
            **{name: value for name, value in optional.items() if value is not None},
        }


def read_steps(calls: object) -> list[tuple[Any, dict[str, Json]]]:
    """Return the tool, or its name, and the arguments of each step. Raise ``InvalidCall``."""
    if not isinstance(calls, Iterable) or isinstance(calls, str | bytes | Mapping):
        raise InvalidCall("a plan is a list of calls: [sayso.ToolCall('pay', {...})]", "steps")
    steps = [_read_step(call, f"steps[{place}]") for place, call in enumerate(calls)]
    if not 1 <= len(steps) <= MOST_STEPS:
        raise InvalidCall(f"a plan has 1 to {MOST_STEPS} steps, not {len(steps)}", "steps")
    return steps


def _read_step(call: object, path: str) -> tuple[Any, dict[str, Json]]:
    match call:
        case ToolCall(name=tool, args=args):
            pass
        case functools.partial(func=tool, args=(), keywords=args):
            pass
        case {"tool": tool, "args": args, **rest} if not rest:
            pass
        case (tool, args):
            pass
        case _:
            raise InvalidCall(
                f"{path}: pass sayso.ToolCall(name, args), (function, args), or a functools.partial"
                " with keyword arguments",
                path,
            )
    if not isinstance(args, Mapping):
        raise InvalidCall(f"{path}: pass the arguments as a mapping of names to values", path)
    return tool, dict(args)


async def step_plan(
    scope: RunScope,
    calls: Sequence[tuple[StepTool, dict[str, Json]]],
    *,
    any_order: bool,
    judge: Callable[[ToolCall, Terms], Awaitable[Terms]],
    options: AskOptions,
    **more: Any,
) -> Plan:
    """Return the call with which a plan is proposed. Its result is the approved steps.

    ``judge`` returns the terms of the plan itself under the policy.
    """
    tools = {tool.stored.name: tool for tool, _ in calls}
    planned: list[_Planned] = []
    for place, (tool, values) in enumerate(calls):
        try:
            args = tool.read(values)
        except (InvalidCall, TypeError) as error:
            raise InvalidCall(f"steps[{place}]: {error}", f"steps[{place}].args") from None
        planned.append(_Planned(tool, args, await tool.terms(codec.loads(args))))
    own = replace(own_terms({**options, "allowed": _DECISIONS}), effect="read")

    async def terms(args: dict[str, Any]) -> Terms:
        judged = await judge(ToolCall(PLAN_TOOL, args), own)
        whole = replace(allow_only(judged, _DECISIONS), plan=True)
        for place, step in enumerate(args["steps"]):
            one = await tools[step["tool"]].terms(step["args"])
            if one.verdict is Verdict.DENY:
                why = one.description or f"the policy ({one.rule}) denies it"
                return replace(one, description=f"step {place + 1}, {step['tool']}: {why}")
            if one.verdict is Verdict.ASK:
                whole = _for_step(whole, one)
        return whole

    content = {"steps": [step.content for step in planned], "any_order": any_order}
    called = [[step.tool.stored.name, codec.loads(step.args)] for step in planned]
    key = options.get("key")
    return Plan(
        key=scope.key(PLAN_TOOL, codec.sha256(codec.canonical([called, any_order]))[:32])
        if key is None
        else scope.named_key(PLAN_TOOL, checked_name(key, "key")),
        kind="approval",
        args=codec.canonical(content).decode(),
        agent=scope.driver.agent,
        terms=terms,
        tool=_plan_tool([tool.stored for tool in tools.values()]),
        tool_name=PLAN_TOOL,
        title=fixed_title(options.get("title") or _TITLE),
        run=_approved_steps,
        load=_steps_from,
        **more,
    )


def _for_step(whole: Terms, step: Terms) -> Terms:
    """Return the terms of a plan, with what a person needs to decide one of its steps too.

    If nobody could decide all steps, those of others ask again.
    """
    both = tighten(whole, replace(step, risk=replace(step.risk, level=plan_risk(step))))
    is_for_others = whole.reviewers and set(whole.reviewers).isdisjoint(step.reviewers)
    return replace(
        whole,
        reviewers=whole.reviewers if is_for_others else both.reviewers,
        requester_decides=both.requester_decides,
        assurance=both.assurance,
        risk=both.risk,
        risk_declared=True,
    )


async def _approved_steps(call: Call) -> Json:
    steps: Json = codec.loads(call.args)["steps"]
    return steps


def _steps_from(text: str) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(step["tool"], step["args"]) for step in codec.loads(text))


def _plan_tool(tools: Sequence[Tool]) -> Tool:
    """Return the tool of a plan. Its schema has those of its steps, so that an edit is checked and
    declared secrets are masked; its digest changes if one of the tools does."""
    shared: dict[str, Json] = {}
    choices: list[Json] = []
    for tool in sorted(tools, key=lambda tool: tool.name):
        parameters = codec.loads(tool.schema)["parameters"]
        prefix = f"{len(choices)}."
        for name, node in parameters.pop("$defs", {}).items():
            shared[prefix + name] = _moved(node, prefix)
        fields = {
            "tool": {"const": tool.name},
            "tool_digest": {"const": tool.digest},
            "args": _moved(parameters, prefix),
        }
        needed: list[Json] = ["tool", "tool_digest", "args", "risk"]
        choices.append({"type": "object", "properties": fields, "required": needed})
    steps = {"type": "array", "items": {"anyOf": choices}, "minItems": 1}
    properties: dict[str, Json] = {"steps": steps, "any_order": {"type": "boolean"}}
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    schema = {"parameters": {**parameters, "$defs": shared}, "returns": None}
    words = "Run each of these calls once, without asking again."
    return Tool.of(PLAN_TOOL, codec.dumps(schema), words, title=_TITLE)


def _moved(node: Any, prefix: str) -> Any:
    """Return a schema whose references lead to definitions with a prefix."""
    if isinstance(node, list):
        return [_moved(item, prefix) for item in node]
    if not isinstance(node, dict):
        return node
    moved = {name: _moved(value, prefix) for name, value in node.items()}
    ref = node.get("$ref")
    if isinstance(ref, str) and ref.startswith(_SHARED):
        moved["$ref"] = _SHARED + prefix + ref.removeprefix(_SHARED)
    return moved
