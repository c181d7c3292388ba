"""A run with two gated calls and one free call, in processes that die at a given point.

``ForkServer`` keeps one warm interpreter without threads, which forks a child for each ``play``. A
point is a commit of the store, before or after, or one of the two sides of an effect or of a model
call. Effects, model calls and acknowledged decisions are lines in files, outside of every process.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import sayso
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scripted_model import ScriptedModel, call, calls, say
from sayso_testing.adapter_steps import Interpreter

THREAD = "t"
BY_HAND = "settled by hand"
REPLY = calls(call("pay", {"amount": 1}), call("look", {"what": "x"}), call("pay", {"amount": 2}))


class KillPoints:
    """Counts the points that a process passes, and kills it at one of them."""

    def __init__(self, folder: Path, kill: int | None) -> None:
        self.folder = folder
        self.kill = kill
        self.reached: list[str] = []

    def reach(self, point: str) -> None:
        self.reached.append(point)
        if self.kill == len(self.reached):
            os.kill(os.getpid(), signal.SIGKILL)

    def commit(self, name: str, when: str) -> None:
        if name != "renew":  # heartbeats come when they come
            self.reach(f"{name} {when}")

    def append(self, file: str, *values: Any) -> None:
        with (self.folder / file).open("a") as out:
            out.write(json.dumps(values) + "\n")


def play(
    folder: str,
    *,
    kill: int | None,
    later: float,
    doubt: str = "respond",
    at_once: bool = True,
    story: str = "plain",
) -> Any:
    """Start or resume the run, and decide what is pending, until it ends."""
    points = KillPoints(Path(folder), kill)
    store = SqliteStore(
        points.folder / "a.db",
        boundary=points.commit,
        clock=lambda: time.time_ns() // 1000 + round(later * 1e6),
    )
    agent = STORIES[story](points, store)
    return asyncio.run(_play(points, store, agent, doubt, at_once))


async def _play(
    points: KillPoints, store: SqliteStore, agent: sayso.Agent, doubt: str, at_once: bool
) -> Any:
    inbox = sayso.Inbox(store)
    known = store.last_run(THREAD) is not None
    result = await (agent.resume(THREAD) if known else agent.run("go", thread=THREAD))
    doubts = []
    while result.status == "paused":
        for request in result.interruptions if at_once else result.interruptions[:1]:
            asks = request.kind == "question"
            decision: sayso.Decision = request.respond("L") if asks else request.approve()
            if request.kind == "in_doubt":
                doubts.append([request.tool, dict(request.args)])
                options = {"reject": request.reject("lost"), "respond": request.respond(BY_HAND)}
                decision = options.get(doubt, decision)
            await inbox.decide(request.id, decision, by="ana")
            points.append("acks", request.id, decision.type)
        result = await agent.resume(THREAD)
    said = [json.loads(body) for _, body in store.messages(THREAD)]
    store.close()
    return {
        "status": result.status,
        "output": result.output,
        "points": points.reached,
        "doubts": doubts,
        "said": [[m["role"], m["content"]] for m in said],
    }


def _nested(points: KillPoints, store: SqliteStore) -> sayso.Agent:
    """Return an agent with a sub-agent, which pays after an approval."""

    @sayso.tool(needs_approval=True)
    async def pay(ctx: sayso.Context, amount: int) -> str:
        """Pay."""
        points.reach("pay before")
        points.append("effects", "pay", amount, ctx.attempt)
        points.reach("pay after")
        return f"paid {amount}"

    def inner(messages: Any) -> Any:
        points.reach("inner model")
        answered = any(message["role"] == "tool" for message in messages)
        return say("Paid.") if answered else call("pay", {"amount": 1})

    def outer(messages: Any) -> Any:
        points.reach("outer model")
        answered = any(message["role"] == "tool" for message in messages)
        return say("Done.") if answered else call("clerk", {"input": "go"})

    clerk = sayso.Agent("clerk", model=ScriptedModel(inner), tools=[pay])
    return sayso.Agent("boss", model=ScriptedModel(outer), tools=[clerk], store=store)


def _asking(points: KillPoints, store: SqliteStore) -> sayso.Agent:
    """Return an agent whose tool asks, runs a step once, and asks again."""

    @sayso.tool
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        points.reach("order")
        size = await ctx.ask("Which size?")

        def reserve() -> int:
            points.reach("reserve before")
            points.append("effects", "reserve", size, 1)
            points.reach("reserve after")
            return 4711

        number = await ctx.once("reserve", reserve)
        sure = await ctx.confirm(f"Order {number}?")
        return f"{size} {number} {sure}"

    def speak(messages: Any) -> Any:
        points.reach("model")
        answered = any(message["role"] == "tool" for message in messages)
        return say("Done.") if answered else call("order")

    return sayso.Agent("waiter", model=ScriptedModel(speak), tools=[order], store=store)


def _agent(points: KillPoints, store: SqliteStore) -> sayso.Agent:
    @sayso.tool(needs_approval=True)
    async def pay(ctx: sayso.Context, amount: int) -> str:
        """Pay."""
        points.reach(f"pay {amount} before")
        points.append("effects", "pay", amount, ctx.attempt)
        points.reach(f"pay {amount} after")
        return f"paid {amount}"

    @sayso.tool
    async def look(ctx: sayso.Context, what: str) -> str:
        """Look."""
        points.reach("look before")
        points.append("effects", "look", what, ctx.attempt)
        points.reach("look after")
        return "seen"

    def speak(messages: Any) -> Any:
        points.reach("model before")
        answered = any(message["role"] == "tool" for message in messages)
        points.append("model", answered)
        points.reach("model after")
        return say("Done.") if answered else REPLY

    model = ScriptedModel(speak)
    return sayso.Agent("mortal", model=model, tools=[pay, look], store=store)


def _reading(points: KillPoints, store: SqliteStore) -> sayso.Agent:
    """Return an agent that makes two reads at once, one of which needs approval."""

    async def read(ctx: sayso.Context, what: str) -> str:
        points.reach(f"{what} before")
        points.append("effects", "read", what, ctx.attempt)
        points.reach(f"{what} after")
        return f"seen {what}"

    @sayso.tool(effect="read")
    async def look(ctx: sayso.Context) -> str:
        """Look."""
        return await read(ctx, "look")

    @sayso.tool(effect="read", needs_approval=True)
    async def open_letter(ctx: sayso.Context) -> str:
        """Open a letter."""
        return await read(ctx, "letter")

    def speak(messages: Any) -> Any:
        points.reach("model")
        answered = any(message["role"] == "tool" for message in messages)
        return say("Done.") if answered else calls(call("look"), call("open_letter"))

    tools = [look, open_letter]
    return sayso.Agent("reader", model=ScriptedModel(speak), tools=tools, store=store)


STORIES = {"plain": _agent, "nested": _nested, "asking": _asking, "reading": _reading}


class ForkServer(Interpreter):
    """The interpreter that forks a child for each play."""

    def __init__(self) -> None:
        super().__init__(__file__)

    def play(self, folder: Path, **options: Any) -> dict[str, Any] | None:
        """Play in a child process. Return its outcome, or None if it was killed."""
        ended = self._ask({"folder": str(folder), **options})
        if "error" in ended:
            raise AssertionError(ended["error"])
        came: dict[str, Any] | None = ended["value"]
        return came


def _serve() -> None:
    for module in ("jsonschema", "sayso.schema.signature"):
        importlib.import_module(module)  # Sayso imports them on first use, in every child
    gc.freeze()  # so that collections in the children do not copy all that was imported
    for line in sys.stdin:
        options = json.loads(line)
        told = Path(options["folder"]) / "told"
        told.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            _child(options, told)
        _, status = os.waitpid(pid, 0)
        ended: dict[str, Any] = {"value": None}
        if told.exists():
            ended = json.loads(told.read_text())
        elif not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            ended = {"error": f"the child ended with {status}"}
        print(json.dumps(ended), flush=True)


def _child(options: dict[str, Any], told: Path) -> None:
    signal.alarm(60)
    try:
        said = {"value": play(**options)}
    except BaseException:
        said = {"error": traceback.format_exc()}
    told.write_text(json.dumps(said))
    os._exit(0)


if __name__ == "__main__":
    _serve()
