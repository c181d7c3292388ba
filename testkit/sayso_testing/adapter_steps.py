"""Run the steps of an adapter test: in this process, or in forked ones that can be killed.

``play`` takes one step. ``ForkServer`` runs steps in processes of their own, forked from one
interpreter that has imported the framework. ``Scenario`` is what a test works with.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.inbox import Inbox
from sayso.stores.sqlite import SqliteStore
from sayso.types import Decision, Request
from sayso_testing.adapter_harness import (
    POLICIES,
    RAISED,
    SCRIPTS,
    AdapterHarness,
    HarnessContext,
    KillSwitch,
    ModelScript,
    lines,
    tools,
)

THREAD = "thread-1"
STORE = "sayso.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one process does. Plain values only, so that it can be sent as JSON."""

    #: ``module:Class``.
    harness: str
    folder: str
    #: ``run``, ``resume``, ``both`` (resume twice at once), ``answer`` or ``coverage``.
    do: str
    thread: str = THREAD
    script: str = "pay"
    policy: str = "plain"
    tools: str = "plain"
    #: At which point to be killed, and how far the clock is ahead, in seconds.
    kill: str = ""
    later: float = 0.0
    #: Stay alive until killed.
    linger: bool = False
    #: A file to wait for, so that several processes start at the same moment.
    together: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The outcome of a step: the status of the run, or the error."""

    status: str
    output: Any = None
    waiting: tuple[str, ...] = ()
    error: str = ""


def play(step: Step, value: Any = None) -> StepResult:
    folder = Path(step.folder)
    if step.together:
        _wait_for(folder / step.together)
    result = asyncio.run(_play(step, folder, value))
    if step.linger:
        (folder / "lingers").touch()
        time.sleep(3600)
    return result


async def _play(step: Step, folder: Path, value: Any) -> StepResult:
    kind: type[AdapterHarness] = pkgutil.resolve_name(step.harness)
    kill_switch = KillSwitch(folder, step.kill)
    store = SqliteStore(
        folder / STORE,
        boundary=kill_switch.commit,
        clock=lambda: time.time_ns() // 1000 + round(step.later * 1e6),
    )
    gate = Gate(store, policy=POLICIES[step.policy], agent="teller", wait=0)
    framework_folder = folder / "framework"
    framework_folder.mkdir(exist_ok=True)
    context = HarnessContext(
        gate=gate,
        tools=tools(step.tools, kind.colour, gate, kill_switch),
        script=ModelScript(SCRIPTS[step.script], folder / "model"),
        folder=framework_folder,
    )
    harness = kind(context)
    try:
        await harness.open()
        return await _run_agent(step, harness, value)
    finally:
        await harness.close()
        gate.close()


async def _run_agent(step: Step, harness: AdapterHarness, value: Any) -> StepResult:
    agent = harness.agent()
    try:
        thread = step.thread
        if step.do == "coverage":
            names = [item.name for item in agent.coverage() if item.gated]
            return StepResult(status="done", output=names)
        if step.do == "run":
            run = await agent.run("go", thread=thread, requester="rita")
        elif step.do == "resume":
            run = await agent.resume(thread)
        elif step.do == "both":
            run, other = await asyncio.gather(agent.resume(thread), agent.resume(thread))
            assert (run.status, run.output) == (other.status, other.output)
        else:
            run = await harness.answer(agent, thread, value)
    except (Exception, Paused) as error:
        expected = step.do == "answer" or step.tools in RAISED
        if not expected and not isinstance(error, SaysoError):
            raise  # only Sayso errors are expected, except for bad answers and broken tools
        return StepResult(status="raised", error=f"{type(error).__name__}: {error}")
    waiting = tuple(request.id for request in run.interruptions)
    return StepResult(status=str(run.status), output=run.output, waiting=waiting)


def _wait_for(path: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.001)


MAX_SECONDS = 90.0
_SERVE = """
import sys; sys.path[:] = {path!r}
from sayso_testing.adapter_steps import serve; serve({harness!r})
"""


class Interpreter:
    """Another Python process that answers each line of JSON with a line of JSON."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def _ask(self, request: dict[str, Any]) -> Any:
        print(json.dumps(request), file=self._requests, flush=True)
        answer = self._answers.readline()
        assert answer, "the other process has died: see its stderr"
        return json.loads(answer)

    def close(self) -> None:
        """Stop the interpreter and its children."""
        self._requests.close()
        self._process.wait(30)
        self._answers.close()


class ForkServer(Interpreter):
    """An interpreter that has imported the framework, and forks a child for each step.

    It has one OS thread and opens no files, so a fork of it behaves like a new process. What a
    step imports is imported for the steps after it, too.
    """

    def __init__(self, harness: str) -> None:
        path = [p or os.getcwd() for p in sys.path]
        super().__init__("-c", _SERVE.format(path=path, harness=harness))

    def spawn(self, step: Step) -> int:
        """Start a step in its own process, and return the process id."""
        pid: int = self._ask({"step": asdict(step)})
        return pid

    def wait(self, pid: int) -> StepResult | None:
        """Return the outcome of a step, or None if its process was killed."""
        ended = self._ask({"wait": pid})
        if ended.get("error"):
            raise AssertionError(ended["error"])
        result = ended["result"]
        if result is None:
            return None
        return StepResult(**{**result, "waiting": tuple(result["waiting"])})


def serve(harness: str) -> None:
    """Answer requests from stdin until it closes."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stdout carries answers only
    pkgutil.resolve_name(harness)
    gc.freeze()  # so that a collection in a child does not copy all that was imported
    children: dict[int, Path] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer: Any = _wait_for_child(request["wait"], children.pop(request["wait"]))
            _import_all(answer.pop("modules", []))
        else:
            answer = _run_in_fork(Step(**request["step"]), children)
        print(json.dumps(answer), file=replies, flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _import_all(modules: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with suppress(Exception):  # an optional part of a package, whose parent knows
                importlib.import_module(name)
    if modules:
        gc.freeze()


def _run_in_fork(step: Step, children: dict[int, Path]) -> int:
    pid = os.fork()
    if pid:
        children[pid] = Path(step.folder, f"outcome {pid}")
        return pid
    outcome: dict[str, Any] = {}
    imported = set(sys.modules)
    try:
        outcome["result"] = asdict(play(step))
    except BaseException:
        outcome["error"] = traceback.format_exc()
    outcome["modules"] = [name for name in sys.modules if name not in imported]
    Path(step.folder, f"outcome {os.getpid()}").write_text(json.dumps(outcome))
    os._exit(0)


def _wait_for_child(pid: int, outcome_file: Path) -> dict[str, Any]:
    end = time.monotonic() + MAX_SECONDS
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"error": f"it did not finish within {MAX_SECONDS} seconds"}
        time.sleep(0.001)
    if outcome_file.exists():
        outcome: dict[str, Any] = json.loads(outcome_file.read_text())
        return outcome
    status = ended[1]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return {"result": None} if killed else {"error": f"the child ended with {status}"}


#: Seconds. Longer than any lease, so that every earlier lease has expired.
LATER = 3600.0


class Scenario:
    """One test: a folder, an inbox, and steps in this process or in others."""

    def __init__(
        self, harness: type[AdapterHarness], folder: Path, fork_server: Callable[[], ForkServer]
    ) -> None:
        self.harness = harness
        self.folder = folder
        self._fork_server = fork_server
        self._inbox: Inbox | None = None
        self._script = "pay"
        self._policy = "plain"

    # -- in this process

    def run(self, script: str = "pay", *, policy: str = "plain", **options: Any) -> StepResult:
        """Run the agent. Later steps use the same script and policy."""
        self._script, self._policy = script, policy
        return play(self._step("run", **options))

    def resume(self, **options: Any) -> StepResult:
        """Resume the thread, in a new agent."""
        return play(self._step("resume", **options))

    def resume_both(self, **options: Any) -> StepResult:
        """Resume twice at the same time, on one agent."""
        return play(self._step("both", **options))

    def answer(self, value: Any) -> StepResult:
        """Resume with an answer in the framework's own form."""
        return play(self._step("answer"), value)

    def covered(self) -> list[str]:
        """Return the names of what the agent says that the gate is in front of."""
        names: list[str] = play(self._step("coverage")).output
        return names

    # -- in processes of their own

    def killed(self, do: str, at: str, **options: Any) -> None:
        """Run a step in a process that is killed at a point of it."""
        result = self._run_in_fork(self._step(do, kill=at, **options))
        assert result is None, f"the process was not killed at {at!r}: {result}"

    def killed_while_waiting(self, script: str = "pay") -> None:
        """Run the agent in a process until it pauses, then kill the process."""
        self._script = script
        pid = self._fork_server().spawn(self._step("run", linger=True))
        _wait_for(self.folder / "lingers")
        os.kill(pid, signal.SIGKILL)
        assert self._fork_server().wait(pid) is None

    def elsewhere(self, do: str = "resume", **options: Any) -> StepResult:
        """Run a step in its own process."""
        result = self._run_in_fork(self._step(do, **options))
        assert result is not None
        return result

    def _run_in_fork(self, step: Step) -> StepResult | None:
        server = self._fork_server()
        return server.wait(server.spawn(step))

    def at_once(self, times: int, **options: Any) -> list[StepResult]:
        """Resume in several processes at the same moment."""
        step = self._step("resume", together="go", **options)
        pids = [self._fork_server().spawn(step) for _ in range(times)]
        (self.folder / "go").touch()
        ended = [self._fork_server().wait(pid) for pid in pids]
        return [result for result in ended if result is not None]

    def _step(self, do: str, **options: Any) -> Step:
        harness = f"{self.harness.__module__}:{self.harness.__qualname__}"
        folder = str(self.folder)
        return Step(
            harness=harness,
            folder=folder,
            do=do,
            script=self._script,
            policy=self._policy,
            **options,
        )

    # -- people

    @property
    def inbox(self) -> Inbox:
        """The inbox, opened in this process."""
        if self._inbox is None:
            self._inbox = Inbox(SqliteStore(self.folder / STORE))
        return self._inbox

    def pending(self, thread: str = THREAD) -> list[Request]:
        """Return pending requests, sorted by payee: a framework may make calls in any order."""
        requests = self.inbox.pending_sync(thread=thread).items
        return sorted(requests, key=lambda request: str(request.args.get("to")))

    def the_request(self) -> Request:
        """Return the only pending request."""
        (request,) = self.pending()
        return request

    def decide(self, request: Request, decision: Decision, by: str = "ana") -> Request:
        return self.inbox.decide_sync(request.id, decision, by=by)

    def approve_all(self) -> None:
        for request in self.pending():
            self.decide(request, request.approve())

    # -- results

    def effects(self, tool: str = "") -> list[dict[str, Any]]:
        """Return the arguments of every execution of a tool, also in killed processes."""
        found = lines(self.folder / "effects")
        return [args for name, args in found if tool in ("", name)]

    @property
    def asked(self) -> int:
        """Return how often the model was called."""
        return len(lines(self.folder / "model"))

    def heard(self, call: str = "call_1") -> str:
        """Return the last result of a call that the model was shown, or an empty text."""
        results = self._results(call)
        return str(results[-1][0]) if results else ""

    def failed(self, call: str = "call_1") -> bool | None:
        """Return whether the last result was marked as a failure; None if there is no mark."""
        marks = self._results(call)[-1][1:]
        return marks[0] if marks else None

    def _results(self, call: str) -> list[list[Any]]:
        prompts = [heard for _, heard in lines(self.folder / "model")]
        return [result for heard in prompts for id, *result in heard if id == call]

    def last_prompt(self) -> tuple[int, int]:
        """Return how many replies and how many results the model's last prompt had."""
        replies, heard = lines(self.folder / "model")[-1]
        return replies, len(heard)

    def tamper(self, old: str, new: str) -> None:
        """Change the framework's saved state."""
        found = self.harness.tamper(self.folder / "framework", old, new)
        assert found, f"{old!r} is not in the framework's state"

    def close(self) -> None:
        if self._inbox is not None:
            self._inbox.close()
