"""A small server around the chat wires, with a lab for every scenario of the real clients.

A lab is an agent, a store and a log of effects, made when its name is first used; the first word of
the name selects the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from live_server import LiveServer

import sayso
import sayso.demo
from sayso.adapters import ag_ui, ai_sdk
from sayso.agent.models import ModelReply, ModelRequest, TextDelta
from sayso.demo.script import script
from sayso.testing import ScriptedModel, call, person, say
from sayso.types import Edit, Reject, Reviewer

STATUS = {sayso.NotFound: 404, sayso.NotAllowed: 403, sayso.InvalidCall: 400}


def quorum_agent(store: str, effects: sayso.demo.Effects) -> sayso.Agent:
    """Return an agent with a call that two people have to approve."""

    @sayso.tool(needs_approval=True, quorum=2)
    def fire(target: str) -> str:
        """Fire an employee."""
        effects.record("fire", {"target": target})
        return "fired"

    model = ScriptedModel([call("fire", {"target": "this one"}), say("Done.")])
    return sayso.Agent("quorum", model=model, tools=[fire], store=store)


def risky_agent(store: str, effects: sayso.demo.Effects) -> sayso.Agent:
    """Return an agent with a call that the person who asked may not decide."""

    @sayso.tool(needs_approval=True, title="Wire {euros} euros")
    def wire(euros: int) -> str:
        """Wire money."""
        effects.record("wire", {"euros": euros})
        return f"wired {euros}"

    model = ScriptedModel([call("wire", {"euros": 900}), say("It is wired.")])
    rules = sayso.Policy([sayso.Rule("wire", risk="high")])
    return sayso.Agent("risky", model=model, tools=[wire], store=store, policy=rules)


class HeldModel(ScriptedModel):
    """The demo's script, which pauses in the middle of a final answer until it is released."""

    def __init__(self) -> None:
        super().__init__(script)
        self.go = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        pieces = [piece async for piece in super().stream(request)]
        for n, piece in enumerate(pieces):
            if n == 2 and isinstance(pieces[-1], ModelReply) and not pieces[-1].calls:
                await self.go.wait()
            yield piece


def held_agent(store: str, effects: sayso.demo.Effects) -> sayso.Agent:
    """Return the agent of the demo, with that model."""
    agent = sayso.demo.agent(store, effects)
    agent.model = HeldModel()
    return agent


MAKERS = {
    "quorum": quorum_agent,
    "risky": risky_agent,
    "held": held_agent,
    "demo": sayso.demo.agent,
}


class Lab:
    """One agent, and what it really did."""

    def __init__(self, name: str, folder: Path) -> None:
        self.effects = sayso.demo.Effects()
        kind = name.partition("-")[0]
        self.agent = MAKERS[kind](f"sqlite:///{folder}/{name}.db", self.effects)
        self._people: dict[tuple[str, str], Reviewer] = {}

    def person(self, request: Request, role: str = "chat") -> Reviewer:
        """Return the signed-in user: this app has a token for each of its users."""
        name = request.headers["x-user"]
        if (name, role) not in self._people:
            self._people[name, role] = person(self.agent.store, name, role=role)
        return self._people[name, role]


def app_with(folder: Path) -> tuple[FastAPI, dict[str, Lab]]:
    app, labs = FastAPI(), dict[str, Lab]()

    def lab(name: str) -> Lab:
        if name not in labs:
            labs[name] = Lab(name, folder)
        return labs[name]

    @app.exception_handler(sayso.SaysoError)
    async def refused(request: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), STATUS.get(type(error), 500))

    for route, recipe in (("chat", False), ("chat-recipe", True)):
        _chat(app, lab, route, recipe)

    @app.post("/{name}/ag-ui")
    async def run(name: str, request: Request) -> Response:
        body = await request.body()
        events = await ag_ui.stream(body, lab(name).agent, by=lab(name).person(request))
        return StreamingResponse(events, headers=ag_ui.HEADERS)

    _others(app, lab)
    return app, labs


def _others(app: FastAPI, lab: Any) -> None:
    """Add routes for the scenarios: another person, the model's pace, the effects."""

    @app.post("/{name}/decide")
    async def decide(name: str, request: Request) -> Response:
        said = await request.json()
        inbox = sayso.Inbox(lab(name).agent.store)
        (asked,) = (await inbox.pending()).items
        decision: Any = asked.approve()
        if said["type"] == "edit":
            decision = Edit(said["args"], seen_digest=asked.digest)
        elif said["type"] == "reject":
            decision = Reject(said["message"], seen_digest=asked.digest)
        elif said["type"] == "cancel":
            await inbox.cancel(asked.run if said.get("run") else asked.id, by="ben")
            return Response()
        await inbox.decide(asked.id, decision, by=lab(name).person(request, "reviewer"))
        return Response()

    @app.post("/{name}/go")
    async def go(name: str) -> Response:
        model = lab(name).agent.model
        assert isinstance(model, HeldModel)
        model.go.set()
        return Response()

    @app.get("/{name}/effects")
    async def effects(name: str) -> Response:
        return JSONResponse(lab(name).effects.all())


def _chat(app: FastAPI, lab: Any, route: str, recipe: bool) -> None:
    @app.post(f"/{{name}}/{route}")
    async def post(name: str, request: Request) -> Response:
        body = await request.body()
        agent = lab(name).agent
        frames = await ai_sdk.stream(body, agent, by=lab(name).person(request), recipe=recipe)
        return StreamingResponse(frames, headers=ai_sdk.HEADERS)

    @app.get(f"/{{name}}/{route}/{{chat}}/stream")
    async def follow(name: str, chat: str, request: Request) -> Response:
        agent = lab(name).agent
        frames = await ai_sdk.follow(agent, chat, by=lab(name).person(request), recipe=recipe)
        if frames is None:
            return Response(status_code=204)
        return StreamingResponse(frames, headers=ai_sdk.HEADERS)

    @app.get(f"/{{name}}/{route}/{{chat}}/messages")
    async def messages(name: str, chat: str, request: Request) -> Response:
        by = lab(name).person(request)
        return JSONResponse(await ai_sdk.messages(lab(name).agent, chat, by=by, recipe=recipe))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run the server in an OS thread. Yield its address."""
    app, labs = app_with(folder)
    server = LiveServer(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
        for made in labs.values():
            made.agent.close()


# -- the real clients


def cannot(reason: str) -> None:
    """Skip, but never where it matters."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def install_packages(folder: Path, oldest_node: int = 20) -> None:
    """Install the npm packages of a folder, unless they are there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        cannot("the real client needs Node and npm, and there is none")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=60)
    if int(version.stdout.removeprefix("v").partition(".")[0] or 0) < oldest_node:
        cannot(f"the real client needs Node {oldest_node} or newer, not {version.stdout.strip()}")
    if (folder / "node_modules" / ".package-lock.json").exists():
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        cannot(f"npm ci failed: {done.stderr[-500:]}")


def play(folder: Path, labs: Path, *arguments: str) -> dict[str, str]:
    """Play the scenarios of a folder. Return what went wrong in each, which may be nothing."""
    with pytest.MonkeyPatch.context() as patch, served(labs) as origin:
        patch.setattr("sayso.demo.script.WORD_SECONDS", 0.0)
        command = ["node", "run.mjs", *arguments, origin]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        outcomes: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return outcomes
