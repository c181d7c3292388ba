"""From what a model wrote to a call that can be asked about: read, judged, bound, previewed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace

from sayso import codec
from sayso.agent.job import Job
from sayso.agent.models.base import HostedApproval, ModelCall
from sayso.agent.offloop import called
from sayso.agent.tool import Tool
from sayso.engine.commands import NewCall
from sayso.errors import InvalidCall, told
from sayso.gate.guard import PREVIEW_SECONDS
from sayso.gate.options import bound_facts, question_terms, title_maker
from sayso.gate.plan import Plan, judged_call
from sayso.rows import HOSTED
from sayso.types import Json, Terms, ToolCall, Verdict, moment
from sayso.views import kept_question

_HOSTED = ("approve", "reject")
_BODILESS = ("respond", "reject")


async def planned(job: Job, key: str, made: ModelCall, note: str) -> NewCall:
    """A call of one of our tools; InvalidCall tells the model what is wrong with it."""
    tool = job.tools.get(made.name)
    if tool is None:
        known = ", ".join(sorted(job.tools)) or "none"
        raise InvalidCall(f"there is no tool {made.name!r}; the tools are: {known}")
    text = tool.read(made.arguments)
    if tool.asks is not None:
        text = codec.canonical(kept_question(tool.asks(codec.loads(text)))).decode()
    return await judged_call(replace(plan_of(job, key, tool, text), note=note))


async def planned_hosted(job: Job, key: str, made: HostedApproval) -> NewCall:
    """A call that the provider runs: people say yes or no, and nothing else."""
    args = codec.parse(made.arguments or "{}")
    if not isinstance(args, dict):
        raise InvalidCall("the arguments must be a JSON object")
    return await judged_call(hosted_plan(job, key, made, codec.canonical(args).decode()))


def hosted_plan(job: Job, key: str, made: HostedApproval, text: str) -> Plan:
    """A call that the provider runs, as the gate knows it."""
    name = f"{made.server}.{made.name}"
    own = question_terms("hosted", _HOSTED, {})

    async def terms(args: dict[str, Json]) -> Terms:
        return _only(await job.gate.judge(ToolCall(name, args, made.id), own, True), _HOSTED)

    return Plan(
        key=key,
        kind="approval",
        args=text,
        agent=job.agent.name,
        terms=terms,
        tool_name=name,
        tool_digest=HOSTED + codec.digest({"server": made.server, "hosted": made.name}),
    )


def plan_of(job: Job, key: str, tool: Tool, text: str) -> Plan:
    """The call as the gate knows it, with the tool as it is now."""

    async def terms(args: dict[str, Json]) -> Terms:
        if tool.asks is not None:
            return tool.own
        said = await job.gate.judge(ToolCall(tool.name, args), tool.own, tool.needs_approval)
        return said if tool.function is not None else _asked(_only(said, _BODILESS))

    async def preview(args: str, revision: int) -> str:
        return await preview_of(job, tool, args, revision)

    return Plan(
        key=key,
        kind="approval" if tool.asks is None else "question",
        args=text,
        agent=job.agent.name,
        terms=terms,
        tool=None if tool.asks is not None else tool.stored,
        tool_name=tool.name,
        binds=lambda: _bound(job, tool),
        effect_key=tool.effect_key,
        settle=tool.settle,
        title=title_maker(tool.title, tool.signature.parameters),
        preview=None if tool.preview is None else preview,
        reads=None if tool.asks is not None else tool.read,
        retry=False,  # the model hears of a failure, and may call again
        dump=tool.signature.dump_result,
    )


def _only(terms: Terms, possible: tuple[str, ...]) -> Terms:
    """The terms without the decisions that such a call cannot take."""
    kept = tuple(name for name in terms.allowed if name in possible)
    return replace(terms, allowed=kept if possible[0] in kept else possible)


def _asked(terms: Terms) -> Terms:
    """Nobody but a person can give the result, whatever a policy allows."""
    return terms if terms.verdict is Verdict.DENY else replace(terms, verdict=Verdict.ASK)


def _bound(job: Job, tool: Tool) -> str:
    """Facts of the surroundings that an approval covers too."""
    facts: dict[str, Json] = {}
    if tool.binds is not None:
        facts = _facts(job, tool.name, tool.binds)
    if job.agent.on_change == "ask" and tool.asks is None:
        facts = {"agent": job.agent.digest, "facts": facts}
    return codec.canonical(facts).decode() if facts else ""


def _facts(job: Job, name: str, binds: Callable[..., Mapping[str, Json]]) -> dict[str, Json]:
    try:
        takes_deps = bool(inspect.signature(binds).parameters)
        return bound_facts(binds, *((job.deps,) if takes_deps else ()))
    except Exception as error:
        said = f"the surroundings of {name} cannot be looked at: {told(error)}"
        raise InvalidCall(said) from error


async def preview_of(job: Job, tool: Tool, text: str, revision: int = 1) -> str:
    """What would happen, as the tool says, with the time and the revision it was made for."""
    if tool.preview is None:
        return ""
    at = moment(job.store.now()).isoformat(timespec="seconds")
    try:
        args, kwargs = tool.signature.load(text.encode())
        async with asyncio.timeout(PREVIEW_SECONDS):
            shown = await called(tool.preview, args, kwargs)
        text = codec.canonical(shown).decode()
    except TimeoutError:
        text = codec.dumps(f"no preview within {PREVIEW_SECONDS:g} seconds")
    except Exception as error:
        text = codec.dumps(f"no preview: {told(error)}")
    return codec.dumps({"at": at, "revision": revision, "shows": codec.loads(text)})
