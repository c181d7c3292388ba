"""``sayso hook test``: run a real coding agent against a scripted model, and see what happens.

Nothing leaves this machine. The agent gets a home folder of its own, a model on loopback that asks
for one shell command, and our hook; Sayso gets a store and a server of its own. The result of each
case says whether the command ran, and what the model got as its result.

``MessagesServer`` speaks the Messages API (Claude Code, Copilot and OpenCode), ``ResponsesServer``
the Responses API (Codex), ``GeminiServer`` the Gemini API. They keep no state: the tool results in
a request say which turn it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from sayso.errors import SaysoError
from sayso.hooks.attacks import Attack, Outcome, Project, read_attacks
from sayso.hooks.program import Config
from sayso.hooks.settings import AGENTS, HookOptions, install, save_config
from sayso.inbox import Inbox, create_token
from sayso.stores import open_store
from sayso.types import Decision, Request

#: How long one run of an agent may take.
_RUN_SECONDS = 120.0
_FIRST_RUN_SECONDS = 240.0
_CALL_SECONDS = 10.0


class TrialError(SaysoError):
    """The agent or the server could not be started."""


# -- scripted models


class Turn(NamedTuple):
    """One reply of the model: a tool to use, by Claude Code's name, or its final text."""

    tool: str = ""
    args: Mapping[str, Any] = {}
    text: str = ""


class FakeModelServer:
    """A model on loopback that follows a script and records the tool results it gets."""

    #: The agent's own names of Claude Code's tools, and of their arguments if they differ.
    tools: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]]

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = list(turns)
        #: The results of tool calls, as the model got them, without repetitions.
        self.told: list[str] = []
        #: The last request, as text: everything that the model has been told so far.
        self.last_request = ""
        #: Called before each turn is answered, with its number.
        self.before_turn: Callable[[int], None] = lambda turn: None
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.reply(b'{"object":"list","data":[],"models":[]}')

            def do_HEAD(self) -> None:
                self.reply(b"")

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                try:
                    body = json.loads(self.rfile.read(length) or b"{}")
                except ValueError:
                    body = {}
                model.last_request = json.dumps(body)
                kind, data = model.answer(self.path, body if isinstance(body, dict) else {})
                self.reply(data, kind)

            def reply(self, data: bytes, kind: str = "application/json") -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> FakeModelServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the content type and the bytes of a reply."""
        raise NotImplementedError

    def turn(self, results: Sequence[str]) -> tuple[int, Turn]:
        self.told += results[len(self.told) :]
        number = min(len(results), len(self.turns) - 1)
        self.before_turn(number)
        return number, self.turns[number]

    def call(self, turn: Turn) -> tuple[str, dict[str, Any]]:
        """Return the tool of a turn and its arguments, as this agent names them."""
        tool, names = self.tools[turn.tool]
        return tool, {names.get(name, name): value for name, value in turn.args.items()}


def _event_stream(events: Sequence[Mapping[str, Any]]) -> tuple[str, bytes]:
    text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    return "text/event-stream", text.encode()


class MessagesServer(FakeModelServer):
    """The Messages API of Anthropic."""

    tools: ClassVar = {"Bash": ("Bash", {}), "Write": ("Write", {})}

    def answer(self, path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
        if "count_tokens" in path:
            return "application/json", b'{"input_tokens":1}'
        if "/messages" not in path:
            return "application/json", b"{}"
        results = [
            _text_of(block.get("content"))
            for message in body.get("messages", [])
            if message.get("role") == "user" and isinstance(message.get("content"), list)
            for block in message["content"]
            if block.get("type") == "tool_result"
        ]
        names = {tool.get("name") for tool in body.get("tools") or ()}
        shell, _ = self.tools["Bash"]
        number, turn = self.turn(results) if shell in names else (0, Turn(text="ok"))
        content: list[dict[str, Any]] = [{"type": "text", "text": turn.text or "I run it."}]
        if turn.tool:
            tool, args = self.call(turn)
            if tool == shell:
                args["description"] = "as the script says"
            use = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": args}
            content.append(use)
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        stop = "tool_use" if turn.tool else "end_turn"
        if not body.get("stream"):
            reply = {**message, "content": content, "stop_reason": stop}
            return "application/json", json.dumps(reply).encode()
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
        ]
        for index, block in enumerate(content):
            events += _stream_block(index, block)
        delta = {"stop_reason": stop, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}})
        events.append({"type": "message_stop"})
        return _event_stream(events)


def _stream_block(index: int, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    empty: dict[str, Any] = {"text": ""}
    if block["type"] == "text":
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        args = json.dumps(block["input"])
        empty = {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": args}
    yield {
        "type": "content_block_start",
        "index": index,
        "content_block": {**block, **empty},
    }
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


class CopilotServer(MessagesServer):
    """The Messages API for Copilot."""

    tools: ClassVar = {
        "Bash": ("bash", {}),
        "Write": ("create", {"file_path": "path", "content": "file_text"}),
    }


class ResponsesServer(FakeModelServer):
    """The Responses API of OpenAI."""

    tools: ClassVar = {"Bash": ("exec_command", {"command": "cmd"})}

    def answer(self, path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
        if "/responses" not in path:
            return "application/json", b"{}"
        items = [item for item in body.get("input", []) if isinstance(item, dict)]
        outputs = [item for item in items if str(item.get("type", "")).endswith("_call_output")]
        number, turn = self.turn([_text_of(item.get("output")) for item in outputs])
        response = {"id": f"resp_{number}"}
        item: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "id": f"msg_{number}",
            "content": [{"type": "output_text", "text": turn.text or "Done."}],
        }
        if turn.tool:
            tool, args = self.call(turn)
            item = {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": f"call_{number}",
                "name": tool,
                "arguments": json.dumps(args),
            }
        usage = {
            "input_tokens": 1,
            "input_tokens_details": None,
            "output_tokens": 1,
            "output_tokens_details": None,
            "total_tokens": 2,
        }
        return _event_stream(
            [
                {"type": "response.created", "response": response},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": {**response, "usage": usage}},
            ]
        )


class GeminiServer(FakeModelServer):
    """The Gemini API of Google."""

    tools: ClassVar = {"Bash": ("run_shell_command", {}), "Write": ("write_file", {})}

    def answer(self, path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
        if "enerateContent" not in path:
            return "application/json", b'{"totalTokens":1}'
        results = [
            json.dumps(part["functionResponse"].get("response"))
            for content in body.get("contents", [])
            for part in content.get("parts") or ()
            if "functionResponse" in part
        ]
        number, turn = self.turn(results) if body.get("tools") else (0, Turn(text="{}"))
        part: dict[str, Any] = {"text": turn.text or "I run it."}
        if turn.tool:
            tool, args = self.call(turn)
            part = {"functionCall": {"id": f"call_{number}", "name": tool, "args": args}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        reply = json.dumps({"candidates": [candidate], "usageMetadata": usage})
        if "streamGenerateContent" in path:
            return "text/event-stream", f"data: {reply}\n\n".encode()
        return "application/json", reply.encode()


class OpenCodeServer(MessagesServer):
    """The Messages API for OpenCode."""

    tools: ClassVar = {"Bash": ("bash", {}), "Write": ("write", {"file_path": "filePath"})}


def _text_of(content: object) -> str:
    if isinstance(content, list):
        texts = [str(part.get("text", "")) for part in content if isinstance(part, dict)]
        return "\n".join(texts)
    return str(content)


# -- the agents


@dataclass(frozen=True, slots=True, kw_only=True)
class RealAgent:
    """How to start one agent with a scripted model, without its user's settings."""

    name: str
    model: type[FakeModelServer]
    environment: Callable[[FakeModelServer], Mapping[str, str]]
    #: The command line, after the program.
    arguments: Sequence[str]
    #: What it adds for each permission mode. "bypass" lets the agent run anything.
    modes: Mapping[str, Sequence[str]]
    #: Writes further settings into the folder.
    prepare: Callable[[Path, FakeModelServer, Path], None] = lambda home, model, project: None
    #: What makes it resume its last session.
    resume: Sequence[str] = ()


def _prepare_codex(home: Path, model: FakeModelServer, project: Path) -> None:
    (home / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "scripted"\n'
        "[model_providers.scripted]\n"
        f'name = "scripted"\nbase_url = "{model.url}/v1"\nwire_api = "responses"\n'
        'env_key = "SCRIPTED_KEY"\n'
        f'[projects."{project}"]\ntrust_level = "trusted"\n'
    )


def _prepare_gemini(home: Path, model: FakeModelServer, project: Path) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))


def _prepare_opencode(home: Path, model: FakeModelServer, project: Path) -> None:
    config = {
        "model": "anthropic/claude-sonnet-4-5",
        "provider": {
            "anthropic": {"options": {"baseURL": f"{model.url}/v1", "apiKey": "scripted"}}
        },
        "autoupdate": False,
        "share": "disabled",
    }
    (home / "opencode").mkdir()
    (home / "opencode" / "opencode.json").write_text(json.dumps(config))


REAL_AGENTS: dict[str, RealAgent] = {
    agent.name: agent
    for agent in (
        RealAgent(
            name="claude",
            model=MessagesServer,
            environment=lambda model: {
                "ANTHROPIC_BASE_URL": model.url,
                "ANTHROPIC_API_KEY": "scripted",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_AUTOUPDATER": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "IS_SANDBOX": "1",
            },
            arguments=["-p", "Do what the script says.", "--output-format", "json"],
            modes={
                "default": [],
                **{
                    mode: ["--permission-mode", mode]
                    for mode in ("acceptEdits", "plan", "auto", "dontAsk")
                },
                "bypass": ["--dangerously-skip-permissions"],
            },
            resume=["--continue"],
        ),
        RealAgent(
            name="codex",
            model=ResponsesServer,
            environment=lambda model: {"SCRIPTED_KEY": "scripted"},
            # Users trust a hook in the TUI, which does not run here.
            arguments=[
                *("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"),
                "Do what the script says.",
            ],
            modes={
                **{
                    sandbox: ["--sandbox", sandbox]
                    for sandbox in ("read-only", "workspace-write", "danger-full-access")
                },
                "on-request": ["--config", "approval_policy=on-request"],
                "approve-for-me": ["--approve-for-me"],
                "bypass": ["--dangerously-bypass-approvals-and-sandbox"],
            },
            prepare=_prepare_codex,
        ),
        RealAgent(
            name="copilot",
            model=CopilotServer,
            environment=lambda model: {
                "COPILOT_OFFLINE": "true",
                "COPILOT_PROVIDER_BASE_URL": model.url,
                "COPILOT_PROVIDER_TYPE": "anthropic",
                "COPILOT_PROVIDER_API_KEY": "scripted",
                "COPILOT_MODEL": "scripted",
            },
            arguments=["-p", "Do what the script says."],
            modes={
                "default": [],
                "allow-tool": ["--allow-tool", "shell(touch)"],
                "bypass": ["--allow-all-tools"],
            },
        ),
        RealAgent(
            name="gemini",
            model=GeminiServer,
            environment=lambda model: {
                "GEMINI_API_KEY": "scripted",
                "GOOGLE_GEMINI_BASE_URL": model.url,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            },
            arguments=["-p", "Do what the script says."],
            modes={"bypass": ["--yolo"]},
            prepare=_prepare_gemini,
        ),
        RealAgent(
            name="opencode",
            model=OpenCodeServer,
            environment=lambda model: {},
            arguments=["run", "Do what the script says."],
            modes={"bypass": ["--auto"]},
            prepare=_prepare_opencode,
        ),
    )
}

#: The folder in which ``make test-agents`` keeps the agents that it installs from npm.
AGENTS_VARIABLE = "SAYSO_AGENTS"


def find_agent(name: str) -> str:
    """Return the path of an agent's program. Raise ``TrialError`` with how to install it."""
    folder = Path(os.environ.get(AGENTS_VARIABLE) or Path.home() / ".cache" / "sayso-agents")
    program = shutil.which(name, path=str(folder / "node_modules" / ".bin")) or shutil.which(name)
    if program is None:
        packages = {
            "claude": "@anthropic-ai/claude-code",
            "codex": "@openai/codex",
            "copilot": "@github/copilot",
            "gemini": "@google/gemini-cli",
            "opencode": "opencode-ai",
        }
        raise TrialError(
            f"{name} is not installed: run `npm install --prefix {folder} {packages[name]}`"
        )
    return program


# -- the cases


class TrialResult(NamedTuple):
    """The result of one case. ``sayso hook test --json`` prints these fields."""

    case: str
    expected: str
    #: "not run", "ran", "ran edited" or an error.
    happened: str
    seconds: float
    #: What the model was told.
    told: tuple[str, ...] = ()
    #: Whether it was told of an edit.
    told_of_edit: bool = False
    #: The names of the files that the commands made.
    made: tuple[str, ...] = ()
    #: How many requests the inbox has had so far.
    requests: int = 0

    @property
    def ok(self) -> bool:
        return self.happened == self.expected


Decide = Callable[[Request], Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One situation: how the request is decided, and what is broken."""

    name: str
    expected: str
    decide: Decide | None = None
    #: How long the hook waits, in seconds.
    limit: float = 60
    #: Replaces the hook's program by one that does not exist.
    no_program: bool = False
    #: The server does not answer.
    no_server: bool = False
    #: The model makes the same call again, and then the request is decided.
    retries: bool = False
    #: How long the agent gives the hook, if not longer than the hook takes.
    agent_seconds: int | None = None
    #: The agent prompts, and the hook answers that, instead of every tool use.
    prompts: bool = False
    #: The permission mode of the agent.
    mode: str = "bypass"
    #: Without the hook, the agent is alone.
    hooked: bool = True
    #: What the model asks for, one after the other; each is a shell command.
    commands: tuple[str, ...] = ("touch {project}/plain.txt",)
    #: The hook ends the agent while the request waits.
    defer: bool = False
    #: The request is decided after the agent has ended, and the agent's session is resumed.
    resumes: bool = False
    #: Adds another hook, which changes the command after this many seconds.
    other_hook_delay: float | None = None
    #: The agents that can do this; all of them if empty.
    only: tuple[str, ...] = ()


def _edit_command(request: Request) -> Decision:
    return request.edit({"command": str(request.args["command"]).replace("plain", "edited")})


CASES: tuple[Case, ...] = (
    Case(name="approved", expected="ran", decide=Request.approve),
    Case(name="rejected", expected="not run", decide=lambda r: r.reject("not on a Friday")),
    Case(name="edited", expected="ran edited", decide=_edit_command),
    Case(name="no answer in time", expected="not run", limit=8),
    Case(
        name="no answer in time, then approved and tried again",
        expected="ran",
        decide=Request.approve,
        limit=8,
        retries=True,
    ),
    Case(name="hook program missing", expected="not run", no_program=True),
    Case(name="server down", expected="not run", no_server=True),
    Case(
        name="permission prompt, approved",
        expected="ran",
        decide=Request.approve,
        prompts=True,
        mode="default",
        only=("claude",),
    ),
    Case(
        name="permission prompt, rejected",
        expected="not run",
        decide=lambda r: r.reject("no"),
        prompts=True,
        mode="default",
        only=("claude",),
    ),
    Case(
        name="no answer in time, session deferred",
        expected="not run",
        limit=8,
        defer=True,
        only=("claude",),
    ),
    Case(
        name="session deferred, then approved and resumed",
        expected="ran",
        decide=Request.approve,
        limit=8,
        defer=True,
        resumes=True,
        only=("claude",),
    ),
    Case(
        name="session deferred, then rejected and resumed",
        expected="not run",
        decide=lambda r: r.reject("no"),
        limit=8,
        defer=True,
        resumes=True,
        only=("claude",),
    ),
    Case(
        name="approved, and another hook changed it before",
        expected="ran",
        decide=Request.approve,
        other_hook_delay=0,
        only=("claude", "codex"),
    ),
    # No hook can change these. They are here so that we notice when an agent does.
    Case(
        name="approved, and another hook changes it afterwards",
        expected="ran edited",
        decide=Request.approve,
        other_hook_delay=8,
        only=("claude", "codex"),
    ),
    Case(
        name="hook killed by the agent's own time-out",
        expected="ran",
        agent_seconds=3,
        only=("claude", "codex", "copilot", "gemini"),
    ),
    # Our own plugin measures the time there.
    Case(
        name="hook killed by the agent's own time-out",
        expected="not run",
        agent_seconds=3,
        only=("opencode",),
    ),
)


class Trial:
    """A server, a store and folders of their own for the runs of one agent."""

    def __init__(self, name: str, folder: Path, policy: str = "") -> None:
        self.agent = REAL_AGENTS[name]
        self.program = find_agent(name)
        self.folder = folder
        self.policy = policy
        self.store = f"sqlite:///{folder / 'sayso.db'}"
        self.runs = 0
        with closing(open_store(self.store)) as store:
            self.token, _ = create_token(store, name, by="sayso hook test", role="agent")
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run ``sayso serve`` inside ``with``."""
        command = [sys.executable, "-m", "sayso.cli.entry", "serve", "--port", "0"]
        command += ["--policy", self.policy] if self.policy else []
        log = self.folder / "serve.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [*command, "--store", self.store], stdout=out, stderr=subprocess.STDOUT
            )
            try:
                self.url = _wait_for_address(process, log)
                yield
            finally:
                process.terminate()
                process.wait(30)

    def run(self, case: Case) -> TrialResult:
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        home = folder / "home"
        project = folder / "project"
        outside = folder / "outside"
        for needed in (home, project, outside):
            needed.mkdir(parents=True)
        calls = [
            Turn("Bash", {"command": command.format(project=project, outside=outside)})
            for command in case.commands
        ]
        command = calls[0].args["command"]
        tries = 2 if case.retries else 1
        turns = [*calls * tries, Turn(text="That is all.")]
        with self.agent.model(turns) as model, Inbox(self.store) as inbox:
            stop = threading.Event()
            if case.decide is not None and not case.retries and not case.resumes:
                person = (inbox, case.decide, command, stop)
                threading.Thread(target=_decide, args=person, daemon=True).start()
            elif case.decide is not None and case.retries:
                decide = case.decide
                model.before_turn = lambda turn: (
                    _decide(inbox, decide, command, stop) if turn == 1 else None
                )
            began = time.monotonic()
            environment = self._install(case, model, folder, home, project)
            problem = self._start(case, model, folder, environment)
            if case.resumes and case.decide is not None and not problem:
                _decide(inbox, case.decide, command, stop)
                problem = self._start(case, model, folder, environment, *self.agent.resume)
            stop.set()
            seconds = time.monotonic() - began
            texts = tuple(model.told)
            told_of_edit = "A person changed the arguments" in model.last_request
            requests = len(inbox.pending_sync()) + len(inbox.history_sync())
        happened = problem or _what_ran(project)
        files = tuple(sorted(path.name for place in (project, outside) for path in place.iterdir()))
        return TrialResult(
            case.name, case.expected, happened, seconds, texts, told_of_edit, files, requests
        )

    def attack(self, attacks: Sequence[Attack]) -> list[Outcome]:
        """Let the agent make the calls of some attacks, and return what each of them did."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        template = Project(folder / "template", {}).create()
        project = Project(folder / "user", {})
        for needed in (folder / "home", project.folder):
            needed.mkdir(parents=True)
        calls = [step for attack in attacks for step in attack.steps if step.tool]
        turns = [Turn(step.tool, project.filled(step.args)) for step in calls]
        outcomes: list[Outcome] = []

        def scenes() -> Iterator[None]:
            """Prepare the project before each call, and look at it after the last of an attack."""
            for attack in attacks:
                project.reset(template)
                for step in attack.steps:
                    if step.tool:
                        yield
                        with project.output.open("a") as output:
                            output.write(model.told[-1])
                    else:
                        project.perform(attack, step)
                outcomes.append(Outcome(attack, project.shows(attack)))

        scene = scenes()
        turns_made = 0

        def before_turn(turn: int) -> None:
            nonlocal turns_made
            while turns_made <= turn:  # an agent may send the same request again
                next(scene, None)
                turns_made += 1

        with self.agent.model([*turns, Turn(text="That is all.")]) as model:
            case = Case(name="attack", expected="")
            model.before_turn = before_turn
            environment = self._install(case, model, folder, folder / "home", project.folder)
            environment |= project.environment()
            environment["PATH"] = os.environ["PATH"]
            if attacks[0].path:
                environment["PATH"] = f"{project.folder / attacks[0].path}:{os.environ['PATH']}"
            problem = self._start(case, model, folder, environment, project=project.folder)
        if problem or len(outcomes) < len(attacks):
            raise TrialError(
                f"{self.agent.name} made {len(model.told)} of {len(calls)} calls: {problem}"
            )
        return outcomes

    def _install(
        self, case: Case, model: FakeModelServer, folder: Path, home: Path, project: Path
    ) -> dict[str, str]:
        """Install the hook, and return the environment of the agent."""
        url = "http://127.0.0.1:9" if case.no_server else self.url
        config = folder / "hook.json"
        save_config(config, Config(server=url, token=self.token))
        options = HookOptions(
            config=str(config),
            limit=case.limit,
            python=str(folder / "gone" / "python") if case.no_program else sys.executable,
            prompts=case.prompts,
            defer=case.defer,
        )
        self.agent.prepare(home, model, project)
        settings = AGENTS[self.agent.name]
        path = home / settings.user_file
        if case.hooked:
            install(settings, path, options)
        if case.other_hook_delay is not None:
            other = folder / "other.py"
            other.write_text(_OTHER_HOOK.format(seconds=case.other_hook_delay))
            hook = {"type": "command", "command": f"{sys.executable} {other}", "timeout": 60}
            content = json.loads(path.read_text())
            content["hooks"][settings.before].append({"matcher": "*", "hooks": [hook]})
            path.write_text(json.dumps(content))
        if case.agent_seconds is not None:
            timeout = f'"{settings.timeout_key}": {options.timeout}'
            shorter = f'"{settings.timeout_key}": {case.agent_seconds}'
            path.write_text(path.read_text().replace(timeout, shorter))
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SAYSO", "CLAUDE"))},
            "HOME": str(home),
            "PWD": str(project),  # OpenCode works where this says
            settings.home_variable: str(home),
            **self.agent.environment(model),
        }

    def _start(
        self,
        case: Case,
        model: FakeModelServer,
        folder: Path,
        environment: Mapping[str, str],
        *extra_arguments: str,
        project: Path | None = None,
    ) -> str:
        """Run the agent, and return what went wrong, or an empty text."""
        project = project or folder / "project"
        limit = _FIRST_RUN_SECONDS if self.runs == 1 else _RUN_SECONDS
        limit += _CALL_SECONDS * len(model.turns)
        try:
            done = subprocess.run(
                [
                    self.program,
                    *self.agent.arguments,
                    *self.agent.modes[case.mode],
                    *extra_arguments,
                ],
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return "the agent did not end in time"
        with (folder / "output").open("ab") as output:
            output.write(done.stdout + done.stderr)
        stopped = case.defer or case.no_program  # Gemini asks the hook before the model
        if not model.told and not stopped and not (project / "plain.txt").exists():
            tail = (done.stderr or done.stdout).decode(errors="replace").strip()[-300:]
            return f"the agent did not get to the call: {tail}"
        return ""


#: A hook that changes the command of a call.
_OTHER_HOOK = """
import json, sys, time
args = json.load(sys.stdin)["tool_input"]
time.sleep({seconds})
args["command"] = args["command"].replace("plain", "edited")
output = {{"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": args}}
print(json.dumps({{"hookSpecificOutput": output}}))
"""


def _wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(300):
        output = log.read_text(errors="replace")
        if "Sayso is at " in output:
            return output.partition("Sayso is at ")[2].split()[0]
        if process.poll() is not None:
            raise TrialError(f"the server did not start: {output[-500:]}")
        time.sleep(0.1)
    raise TrialError("the server did not start within 30 seconds")


def _decide(inbox: Inbox, decide: Decide, command: str, stop: threading.Event) -> None:
    """Decide the request about a command, once it is there."""
    while not stop.is_set():
        for request in inbox.pending_sync().items:
            if request.args.get("command") != command:
                continue
            with suppress(SaysoError):
                inbox.decide_sync(request.id, decide(request), by="ana")
                return
        stop.wait(0.2)


def _what_ran(project: Path) -> str:
    if (project / "edited.txt").exists():
        return "ran edited" if not (project / "plain.txt").exists() else "ran both"
    return "ran" if (project / "plain.txt").exists() else "not run"


def try_agent(name: str) -> Iterator[TrialResult]:
    """Run every case with a real agent, and yield the results."""
    with tempfile.TemporaryDirectory(prefix="sayso-hook-") as folder:
        trial = Trial(name, Path(folder).resolve())
        with trial.serving():
            for case in CASES:
                if not case.only or name in case.only:
                    yield trial.run(case)


#: How many attacks one process of an agent plays: its requests grow with each call.
_BATCH = 40


def attack_agent(
    name: str, policy: str, attacks: Sequence[Attack] | None = None
) -> Iterator[Outcome]:
    """Let a real agent make the calls of attacks, reject what it asks, and yield the outcomes.

    Leaves out the attacks that could do harm (they have no proof), or that this agent cannot make.
    """
    with tempfile.TemporaryDirectory(prefix="sayso-hook-") as folder:
        trial = Trial(name, Path(folder).resolve(), policy)
        tools = {"", *trial.agent.model.tools}
        playable = [
            attack
            for attack in (read_attacks() if attacks is None else attacks)
            if attack.proof and attack.shell == "bash"
            if tools.issuperset(step.tool for step in attack.steps)
        ]
        playable.sort(key=lambda attack: attack.path)
        with trial.serving(), Inbox(trial.store) as inbox, _rejecting(inbox):
            for _, group in groupby(playable, key=lambda attack: attack.path):
                batch = list(group)
                for start in range(0, len(batch), _BATCH):
                    yield from trial.attack(batch[start : start + _BATCH])


@contextmanager
def _rejecting(inbox: Inbox) -> Iterator[None]:
    """Reject every request inside ``with``."""
    stop = threading.Event()

    def reject() -> None:
        while not stop.wait(0.05):
            for request in inbox.pending_sync().items:
                with suppress(SaysoError):
                    inbox.decide_sync(request.id, request.reject("no"), by="ana")

    person = threading.Thread(target=reject)
    person.start()
    try:
        yield
    finally:
        stop.set()
        person.join()
