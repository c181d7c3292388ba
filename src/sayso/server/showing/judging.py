"""What the policies of the agents here say of edited arguments, in front of whoever edits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sayso import codec
from sayso.agent import Agent
from sayso.agent.agent import Resumable
from sayso.engine.effects import is_remote
from sayso.gate import Gate
from sayso.gate.judge import judge_sync
from sayso.inbox.inbox import Judge
from sayso.policy import Judging
from sayso.rows import Call
from sayso.types import Json, Terms, ToolCall, moment


def judge_of(agents: Iterable[Resumable], gate: Gate) -> Judge:
    """One judge for all agents. The policy of ``gate`` is that of agents on other machines; for any
    other agent that is not here, its own gate looks before the start."""
    ours = {agent.name: agent for agent in agents if isinstance(agent, Agent)}

    def judge(call: Call, args: Mapping[str, Json]) -> Terms:
        agent = ours.get(call.agent)
        if agent is not None:
            return agent.judge(call, args)
        if not call.tool or not came_from_elsewhere(call):
            return call.terms
        return judge_sync(judging(gate, call, args))

    return judge


def judging(gate: Gate, call: Call, args: Mapping[str, Json]) -> Judging:
    """What the policy of agents elsewhere says of these arguments, on the terms of their call.

    Where no rule says what the tool's effect is, it is "once", whatever it was before.
    """
    return gate.policy.judge(
        ToolCall(call.tool, args),
        agent=call.agent,
        now=moment(gate.store.now()),
        own=replace(call.terms, effect="once"),
        needs_approval=True,
    )


def body_binds(body: str, facts: Mapping[str, Json]) -> str:
    """What a request from another machine is bound to: the body that opened it, and its facts."""
    return codec.canonical({"body": body, **({"facts": dict(facts)} if facts else {})}).decode()


def came_from_elsewhere(call: Call) -> bool:
    """Whether an agent on another machine opened it: it is bound to the body that it sent."""
    return is_remote(call.binds)
