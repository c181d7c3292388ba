"""One test's own copy of the story: a folder, an inbox, and steps in this process or in others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sayso.inbox import Inbox
from sayso.stores.sqlite import SqliteStore
from sayso.testing.story.nursery import Nursery
from sayso.testing.story.stage import Stage, lines
from sayso.testing.story.step import STORE, THREAD, Came, Step, play
from sayso.types import Decision, Request

#: Longer than any lease: whoever held one is taken for gone.
LATER = 3600.0


class Scene:
    """What a case of the story works with."""

    def __init__(self, stage: type[Stage], folder: Path, nursery: Callable[[], Nursery]) -> None:
        self.stage = stage
        self.folder = folder
        self._nursery = nursery
        self._inbox: Inbox | None = None
        self._script = "pay"
        self._policy = "plain"

    # -- in this process

    def run(self, script: str = "pay", *, policy: str = "plain", **options: Any) -> Came:
        """The user's words; the script and the policy stay for all later steps."""
        self._script, self._policy = script, policy
        return play(self._step("run", **options))

    def resume(self, **options: Any) -> Came:
        """Go on, as a process that knows nothing but the thread."""
        return play(self._step("resume", **options))

    def resume_both(self, **options: Any) -> Came:
        """The same twice at once, on one agent."""
        return play(self._step("both", **options))

    def answer(self, value: Any) -> Came:
        """Hand in an answer in the framework's own way."""
        return play(self._step("answer"), value)

    # -- in processes of their own

    def killed(self, do: str, at: str, **options: Any) -> None:
        """A process takes the step and dies at that point of it."""
        came = self._nursery().wait(self._nursery().spawn(self._step(do, kill=at, **options)))
        assert came is None, f"the process was to die at {at!r}, and came to {came}"

    def killed_while_waiting(self, script: str = "pay") -> None:
        """A process runs the agent until it waits for people, stays, and is killed."""
        self._script = script
        pid = self._nursery().spawn(self._step("run", linger=True))
        end = time.monotonic() + 60
        while not (self.folder / "lingers").exists():
            assert time.monotonic() < end, "the process did not come to a pause"
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
        assert self._nursery().wait(pid) is None

    def elsewhere(self, do: str = "resume", **options: Any) -> Came:
        """The step in a process of its own."""
        came = self._nursery().wait(self._nursery().spawn(self._step(do, **options)))
        assert came is not None
        return came

    def at_once(self, times: int, **options: Any) -> list[Came]:
        """Several processes that resume at the same moment."""
        step = self._step("resume", together="go", **options)
        pids = [self._nursery().spawn(step) for _ in range(times)]
        (self.folder / "go").touch()
        ended = [self._nursery().wait(pid) for pid in pids]
        return [came for came in ended if came is not None]

    def _step(self, do: str, **options: Any) -> Step:
        stage = f"{self.stage.__module__}:{self.stage.__qualname__}"
        folder = str(self.folder)
        return Step(
            stage=stage, folder=folder, do=do, script=self._script, policy=self._policy, **options
        )

    # -- people

    @property
    def inbox(self) -> Inbox:
        """The person's door, in the test's own process."""
        if self._inbox is None:
            self._inbox = Inbox(SqliteStore(self.folder / STORE))
        return self._inbox

    def pending(self) -> list[Request]:
        """What waits, ana before bob: a framework may make the calls of a turn all at once."""
        found = self.inbox.pending_sync(thread=THREAD).items
        return sorted(found, key=lambda request: str(request.args.get("to")))

    def the_request(self) -> Request:
        """The only thing that waits."""
        (request,) = self.pending()
        return request

    def decide(self, request: Request, decision: Decision, by: str = "ana") -> Request:
        """A person decides."""
        return self.inbox.decide_sync(request.id, decision, by=by)

    def approve_all(self) -> None:
        """A person says yes to everything that waits."""
        for request in self.pending():
            self.decide(request, request.approve())

    # -- what came of it

    def effects(self, tool: str = "") -> list[dict[str, Any]]:
        """The arguments of every run of a tool, whatever became of its process."""
        found = lines(self.folder / "effects")
        return [args for name, args in found if tool in ("", name)]

    @property
    def asked(self) -> int:
        """How often the model was called."""
        return len(lines(self.folder / "model"))

    def heard(self, call: str = "call_1") -> str:
        """What the model was told last of a call; empty if it was told nothing."""
        told = [
            text for _, heard in lines(self.folder / "model") for id, text in heard if id == call
        ]
        return str(told[-1]) if told else ""

    def tamper(self, old: str, new: str) -> None:
        """Change the framework's own state behind everybody's back."""
        found = self.stage.tamper(self.folder / "framework", old, new)
        assert found, f"{old!r} stands nowhere in the framework's state: nothing was changed"

    def close(self) -> None:
        if self._inbox is not None:
            self._inbox.close()
