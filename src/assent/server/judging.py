"""What the policies of the agents here say of edited arguments, in front of whoever edits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assent.agent import Agent
from assent.agent.resumable import Resumable
from assent.inbox.inbox import Judge
from assent.rows import Call
from assent.types import Json, Terms


def judge_of(agents: Iterable[Resumable]) -> Judge:
    """One judge for all agents; for one that is not here, its own gate looks before the start."""
    ours = {agent.name: agent for agent in agents if isinstance(agent, Agent)}

    def judge(call: Call, args: Mapping[str, Json]) -> Terms:
        agent = ours.get(call.agent)
        return call.terms if agent is None else agent.judge(call, args)

    return judge
