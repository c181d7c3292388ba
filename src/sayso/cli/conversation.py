"""Talk to an agent: a conversation in the terminal, or one message from a script.

Requests that are skipped or left stay pending in the store, and the run stays paused: the same
thread can continue later, here or elsewhere. Decisions made elsewhere take effect at once.

``Conversation`` is the interactive loop and ``once`` the scripted one. Both print what the agent
does through ``EventPrinter``, and its text as it streams through ``TextWriter``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from pydantic_core import to_jsonable_python
from rich.cells import cell_len

from sayso import codec, text
from sayso.agent import Agent, Ended, RunResult, Text, ToolEnded, ToolStarted
from sayso.agent.events import AgentEvent, cancel_streams, wait_for_streams
from sayso.agent.models import ModelError
from sayso.channels.card import utc_now
from sayso.channels.layout import Line, name, wrapped
from sayso.channels.prompt import ask
from sayso.channels.screen import LONGEST_LINE, Screen, Typed, Woken, console, screen_width, show
from sayso.cli import output
from sayso.cli.common import Caller, Exit, Usage
from sayso.cli.load_agents import mute_terminal_channel
from sayso.cli.output import cut, subject
from sayso.errors import Conflict, NotFound, SaysoError
from sayso.inbox import Inbox
from sayso.redaction import redact_declared
from sayso.rows import LIVE, Run
from sayso.stores.address import is_in_memory
from sayso.stores.nested_runs import inner_runs
from sayso.sync import exit_soon
from sayso.types import Request

#: A slash command: its help text, and what it does.
Command = tuple[str, Callable[[], None]]

_LAST_WORDS = 2
_SOON = 0.05
_HELP = {
    "/decide": "decide pending requests",
    "/help": "show this list",
    "/quit": "leave; Ctrl-D does the same",
}


class _Leave(Exception):
    """The person left the conversation."""


@dataclass(frozen=True, slots=True)
class _PendingRequests:
    """Watches pending requests while the person may type something else."""

    inbox: Inbox
    requests: Sequence[Request]

    def patience(self) -> float | None:
        """Return the seconds until the first request expires."""
        ends = [r.expires_at for r in self.requests if r.expires_at is not None]
        return max((min(ends) - utc_now()).total_seconds() + 0.05, 0.2) if ends else None

    def changed(self) -> bool:
        """Return whether one of the requests is no longer pending."""
        return any(self.inbox.get_sync(r.id).settled for r in self.requests)


class Conversation:
    """One person, one agent, one thread."""

    def __init__(
        self,
        agent: Agent,
        thread: str,
        who: Caller,
        screen: Screen,
        *,
        again: Sequence[str],
        commands: Mapping[str, Command] | None = None,
    ) -> None:
        self.agent = agent
        self.thread = thread
        self.who = who
        self.screen = screen
        #: The command that continues this conversation.
        self.again = again
        self.commands = dict(commands or {})
        self.inbox = Inbox(agent.store)
        self.printer = EventPrinter(agent, plain=screen.plain)
        self._skipped: set[str] = set()
        self._running: set[str] = set()
        self._runner = asyncio.Runner()
        self._cut = False
        agent.listeners.append(self._track)
        mute_terminal_channel(agent)

    def run(self) -> None:
        try:
            result = self._continue_thread()
            while True:
                result = self._decide(result)
                result = self._listen(result)
        except (_Leave, KeyboardInterrupt):
            self.screen.say("")
        finally:
            if not self._cut:  # otherwise closing would wait for a tool's worker thread
                self._runner.close()

    def goodbye(self) -> Exit:
        """Print what is pending and how to continue. Return ``PENDING`` if something is."""
        run = self.agent.store.live_run(self.thread)
        if run is None:  # a cancelled run may have left a call in doubt
            waiting: Sequence[Request] = self.inbox.pending_sync(
                agent=self.agent.name, thread=self.thread, kind="in_doubt"
            ).items
        else:
            waiting = self._waiting_in(run)
        if waiting:
            verb = "needs" if len(waiting) == 1 else "need"
            why = "The run has ended." if run is None else "The run is paused."
            count = text.many(len(waiting), "request")
            self.screen.say(f"{count} {verb} a decision. {why}", "bold yellow")
        if is_in_memory(self.agent.store.url):
            self.screen.say("Nothing is kept: this agent's store is in memory.", "dim")
        else:
            show_command("To continue:", self.again)
        code = Exit.PENDING if waiting else Exit.OK
        if self._cut:
            exit_soon(code)
        return code

    # -- starting and leaving

    def _continue_thread(self) -> RunResult | None:
        """Show the end of an earlier conversation, and resume its run if it is not finished."""
        run = self.agent.store.last_run(self.thread)
        if run is None:
            return None
        if run.agent != self.agent.name:
            raise Conflict(
                f"thread {self.thread!r} belongs to agent {run.agent!r}: name another with --thread"
            )
        messages = [codec.loads(body) for _, body in self.agent.store.messages(self.thread)]
        spoken = [m for m in messages if m["role"] in ("user", "assistant") and m.get("content")]
        if spoken:
            self.screen.say("Earlier in this thread:", "dim")
        for message in spoken[-_LAST_WORDS:]:
            who = "you" if message["role"] == "user" else name(self.agent.name)
            self.screen.show([Line(text.inline(message["content"]), "dim", f"  {who} │ ")])
        if run.status not in LIVE:
            return None
        return self._follow(self.agent.stream_resume(run.id))

    def _waiting_in(self, run: Run) -> Sequence[Request]:
        """Return the pending requests of a run and of its sub-agents."""
        own = self.inbox.pending_sync(agent=run.agent, thread=run.thread, limit=500).items
        inner = [self._waiting_in(inner_run) for inner_run in inner_runs(self.agent.store, run)]
        return [*own, *(request for requests in inner for request in requests)]

    # -- deciding

    def _decide(self, result: RunResult | None) -> RunResult | None:
        """Prompt for pending requests and resume, until the run ends or the rest is skipped."""
        while result is not None and result.status == "paused":
            todo = [r for r in result.interruptions if r.id not in self._skipped]
            closed = [self._prompt(request) for request in todo]
            if not any(closed):
                return result
            result = self._resume(result)
        return result

    def _prompt(self, request: Request) -> bool:
        """Prompt for a request. Return whether it was closed, so that the run can resume."""
        answer = ask(self.screen, self.who.review(self.inbox, request))
        if answer.how == "left":
            raise _Leave
        # A vote may leave the request pending.
        if answer.how in ("decided", "closed") and answer.request.settled:
            return True
        self._skipped.add(request.id)
        return False

    def _resume(self, result: RunResult) -> RunResult | None:
        self.printer.closed(self.inbox.get_sync(r.id) for r in result.interruptions)
        return self._follow(self.agent.stream_resume(result.run))

    # -- listening

    def _listen(self, result: RunResult | None) -> RunResult | None:
        """Read the person's next line and act on it; resume if someone else decides first."""
        waiting = result.interruptions if result is not None and result.status == "paused" else ()
        self.printer.waiting(waiting)
        while True:
            try:
                typed = self._read_line(waiting)
            except Woken:
                assert result is not None
                for request in [self.inbox.get_sync(r.id) for r in waiting]:
                    if request.decision is not None and request.status != "pending":
                        by = name(request.decision.by)
                        words = f"{subject(request)}: {request.decision.type} by {by}, elsewhere"
                        self.screen.say(words, "bold")
                return self._resume(result)
            words = self._text_of(typed)
            if words == "/decide" and waiting:
                self._skipped.clear()
                return result
            if words.startswith("/") and not typed.pasted:
                self._command(words)
            elif words and self._may_send(waiting):
                self._skipped.clear()
                events = self.agent.stream(words, thread=self.thread, requester=self.who.name)
                return self._follow(events)

    def _read_line(self, waiting: Sequence[Request]) -> Typed:
        hint = " (/decide pending requests)" if waiting else ""
        self.screen.say("")
        with contextlib.ExitStack() as stack:
            watch = None
            if waiting:
                watch = _PendingRequests(self.inbox, waiting)
                for thread in {r.thread for r in waiting}:
                    listening = self.inbox.store.subscribe(thread, self.screen.wake)
                    stack.callback(listening.cancel)
                if watch.changed():
                    raise Woken
            typed = self.screen.ask(f"You{hint} >", watch)
        if typed is None:
            raise _Leave
        return typed

    def _text_of(self, typed: Typed) -> str:
        if len(typed.text) >= LONGEST_LINE and not typed.pasted:
            self.screen.say(f"Terminals cut lines after {LONGEST_LINE:,} characters.", "yellow")
            return ""
        return typed.text.strip()

    def _may_send(self, waiting: Sequence[Request]) -> bool:
        """Confirm a new message, because it supersedes pending requests."""
        if not waiting:
            return True
        what = " and ".join(subject(request) for request in waiting)
        self.screen.say(f"A new message withdraws pending requests: {what}.", "yellow")
        typed = self.screen.ask("Send it anyway? [y]es, [n]o >")
        return typed is not None and not typed.pasted and typed.text.strip().lower() == "y"

    def _command(self, words: str) -> None:
        if words == "/quit":
            raise _Leave
        if words in self.commands:
            self.commands[words][1]()
        elif words == "/decide":
            self.screen.say("No pending requests.")
        else:
            if words != "/help":
                self.screen.say(f"There is no command {text.inline(words)}. Use one of these:")
            help_texts = {**{word: help for word, (help, _) in self.commands.items()}, **_HELP}
            lines = [Line(what, "", f"  {word:<8} ", "bold") for word, what in help_texts.items()]
            self.screen.show(lines)

    # -- running

    def _follow(self, events: AsyncIterator[AgentEvent]) -> RunResult | None:
        """Print a run's events. Return ``None`` if it could not start, or was stopped by Ctrl-C."""
        run = self.agent.store.live_run(self.thread)
        ours = run is None or not run.leased(self.agent.store.now())
        if not ours:
            self.screen.say("Another process is working on this thread; waiting.", "yellow")
        self.printer.begin()
        try:
            return self._runner.run(_follow(events, self.printer))
        except KeyboardInterrupt:
            self.printer.end_text()
            if not ours:
                raise
            self._stop()
        except SaysoError as error:
            self.printer.end_text()
            self.screen.say(text.inline(str(error)), "bold red")
            if ours and isinstance(error, ModelError):
                # Every call has its result by now; the next message continues from there.
                self._runner.run(self._cancel_run("the model failed"))
        return None

    def _stop(self) -> None:
        """Cancel the run, and wait for calls that have started."""
        self.screen.say("")
        if self._running:
            self.screen.say("Stopping after the running call (Ctrl-C to cut it short).", "yellow")
        try:
            self._runner.run(self._cancel_and_wait())
        except KeyboardInterrupt:
            self._runner.run(_end_tasks())
            self._cut = True
            raise
        self.screen.say("Stopped.", "bold yellow")

    async def _cancel_and_wait(self) -> None:
        await self._cancel_run("stopped by the user")
        while self._running:
            await asyncio.sleep(_SOON)
        await _end_tasks()

    async def _cancel_run(self, reason: str) -> None:
        with contextlib.suppress(NotFound):  # nothing was written yet
            await self.agent.cancel(self.thread, by=self.who.name, reason=reason)

    def _track(self, event: AgentEvent) -> None:
        """Track running calls, also while nothing is printed."""
        if isinstance(event, ToolStarted):
            self._running.add(event.id)
        elif isinstance(event, ToolEnded):
            self._running.discard(event.id)
        elif isinstance(event, Ended):
            self._running.clear()


async def _follow(
    events: AsyncIterator[AgentEvent], printer: EventPrinter | None
) -> RunResult | None:
    """Print a run's events. Return its result, or ``None`` if it did not get that far."""
    result = None
    async for event in events:
        if printer is not None:
            printer(event)
        if isinstance(event, Ended):
            result = event.result
    return result


async def _end_tasks() -> None:
    """Cancel all tasks on this loop. Calls that had started are then in doubt."""
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def converse(agent: Agent, thread: str, who: Caller, screen: Screen, again: Sequence[str]) -> Exit:
    """Hold a conversation, and return the exit code."""
    where = f"{name(agent.name)}, thread {name(thread)}, stored in {name(agent.store.url)}"
    screen.say(where, "dim")
    screen.say("Type a message. /help lists commands, Ctrl-D exits.", "dim")
    conversation = Conversation(agent, thread, who, screen, again=again)
    conversation.run()
    return conversation.goodbye()


_EXITS = {"done": Exit.OK, "paused": Exit.NO_REVIEWER}


def once(
    agent: Agent,
    thread: str,
    who: Caller,
    words: str,
    again: Sequence[str],
    *,
    json: bool,
    plain: bool,
) -> Exit:
    """Send one message; without one, resume what others have decided meanwhile."""
    mute_terminal_channel(agent)
    if words.strip():
        events = agent.stream(words.strip(), thread=thread, requester=who.name)
    else:
        run = agent.store.live_run(thread)
        if run is None:
            raise Usage("there is no message: pass --message TEXT, or a text on stdin")
        events = agent.stream_resume(run.id)
    printer = None if json else EventPrinter(agent, plain=plain)
    with asyncio.Runner() as runner:
        try:
            result = runner.run(_follow_to_the_end(events, printer))
        except KeyboardInterrupt:
            exit_soon(Exit.PENDING)  # closing the runner would wait for a tool's worker thread
            raise
    if json:
        names = ("status", "thread", "run", "output", "error", "refusal")
        value = {name: getattr(result, name) for name in names}
        pending = [output.shown_json(request) for request in result.interruptions]
        value |= {"output": to_jsonable_python(result.output), "interruptions": pending}
        output.print_json(value)
    elif printer is not None and result.status == "paused":
        printer.waiting(result.interruptions)
        decide = ["sayso", "inbox", "--decide", "--store", agent.store.url]
        show_command("To decide:", decide)
        show_command("To continue:", again)
    return _EXITS.get(result.status, Exit.PROBLEM)


async def _follow_to_the_end(
    events: AsyncIterator[AgentEvent], printer: EventPrinter | None
) -> RunResult:
    try:
        result = await _follow(events, printer)
    except asyncio.CancelledError:
        cancel_streams()  # calls that had started are in doubt; do not wait for them
        await wait_for_streams()
        raise
    assert result is not None
    return result


_LONG = 500
_WHY_CLOSED = {
    "expired": "it expired",
    "cancelled": "it was cancelled",
    "superseded": "your new message withdrew it",
}


class EventPrinter:
    """Prints what an agent does: its text as it streams, and a mark for each call.

    ``▸`` it runs, ``✓`` it ran or was answered, ``✗`` it did not run or failed, ``…`` pending.
    """

    def __init__(self, agent: Agent, *, plain: bool = False) -> None:
        self._agent = agent
        self._plain = plain
        self._speech: TextWriter | None = None
        self._spoke = False

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, Text):
            self._say(event.text)
            return
        self.end_text()
        if isinstance(event, ToolStarted):
            self._started(event)
        elif isinstance(event, ToolEnded):
            self._ended(event)
        elif isinstance(event, Ended):
            self._result(event.result)

    def begin(self) -> None:
        """Start a new step, in which the agent has said nothing yet."""
        self._spoke = False

    def end_text(self) -> None:
        if self._speech is not None:
            self._speech.end()
            self._speech = None

    def line(self, mark: str, words: str, style: str) -> None:
        """Print a mark and words, which must be inert; they are cut after two rows."""
        target = console(plain=self._plain)
        row = cut(words, 2 * target.width - 12)
        show(target, [Line(row, "", f"  {mark} ", style)])

    def _say(self, piece: str) -> None:
        if self._speech is None:
            show(console(plain=self._plain), [Line(name(self._agent.name), "bold cyan")])
            self._speech = TextWriter(sys.stdout, screen_width())
        self._spoke = True
        self._speech.add(piece)

    def _started(self, event: ToolStarted) -> None:
        call = self._agent.store.call(event.id)
        words = name(event.tool)
        if call is not None:
            tool = self._agent.store.tool(call.tool_digest)
            schema = None if tool is None else codec.loads(tool.schema)["parameters"]
            args = redact_declared(codec.loads(call.args), schema)
            parts = [f"{name(key)}={_short(codec.dumps(args[key]), as_json=True)}" for key in args]
            words += f"({', '.join(parts)})"
            words += " as edited" if call.original is not None else ""
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        self.line("▸", f"{words} runs{again}", "dim")

    def _ended(self, event: ToolEnded) -> None:
        call = self._agent.store.call(event.id)
        if call is None or call.result is None:
            self.line("✓", f"{name(event.tool)} ran", "bold green")
        elif str(call.status) == "failed":
            self.line("✗", f"{name(event.tool)} failed: {_short(call.result)}", "bold red")
        else:
            result = _short(call.result, as_json=True)
            self.line("✓", f"{name(event.tool)} ran: {result}", "bold green")

    def _result(self, result: RunResult) -> None:
        if result.status == "done" and not self._spoke and isinstance(result.output, str):
            self._say(result.output)
            self.end_text()
        elif result.status not in ("done", "paused"):
            error = text.inline(result.error[:_LONG])
            self.line("✗", f"The run is {result.status}: {error}", "bold red")

    def closed(self, requests: Iterable[Request]) -> None:
        """Print why requests were closed without running."""
        for request in requests:
            what = subject(request)
            decided = request.decision
            question = request.question is not None
            if request.status == "rejected" and decided is not None:
                why = f": {text.inline(decided.message)}" if decided.message else ""
                how = "was not answered" if question else "did not run"
                words = f"{what} {how}, rejected by {name(decided.by)}{why}"
                self.line("✗", words, "bold red")
            elif request.status == "responded" and decided is not None:
                value = _short(codec.dumps(decided.value), as_json=True)
                how = "answered" if question else "did not run, result given"
                self.line("✓", f"{what} {how} by {name(decided.by)}: {value}", "bold green")
            elif request.status in _WHY_CLOSED:
                self.line("✗", f"{what} did not run: {_WHY_CLOSED[request.status]}", "bold red")

    def waiting(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.line("…", f"{subject(request)} needs a decision: {request.id}", "bold yellow")


def show_command(label: str, command: Sequence[str]) -> None:
    """Print a command to copy: complete and on one line, however narrow the terminal is."""
    print(f"{label} {text.inline(shlex.join(command))}", flush=True)


def _short(value: str, *, as_json: bool = False) -> str:
    """Return a value in one line; text without its quotes."""
    if as_json:
        parsed = codec.loads(value)
        value = parsed if isinstance(parsed, str) else value
    return text.inline(value[:_LONG]) + "…" * (len(value) > _LONG)


GUTTER = "  │ "
_WORD = re.compile(r"\n|[^\S\n]*\S+|[^\S\n]+")
_BLANKS = re.compile(r"\s+")
_LONGEST_WORD = 400  # characters to hold back while waiting for the end of a word


class TextWriter:
    """Writes streaming text word by word: inert, wrapped, and behind a gutter of ours."""

    def __init__(self, out: TextIO, width: int) -> None:
        self._out = out
        self._room = width - len(GUTTER)
        self._rest = ""
        self._column = 0
        self._began = False

    def add(self, piece: str) -> None:
        text_so_far = self._rest + piece
        cut = max((blank.start() for blank in _BLANKS.finditer(text_so_far)), default=0)
        if len(text_so_far) - cut > _LONGEST_WORD:
            cut = len(text_so_far)
        self._rest = text_so_far[cut:]
        self._write(text_so_far[:cut])

    def end(self) -> None:
        """Write the rest, and end the line."""
        self._write(self._rest.rstrip())
        self._rest = ""
        if self._began:
            self._out.write("\n")
        self._began = False
        self._out.flush()

    def _write(self, words: str) -> None:
        inert = text.visible(words).text.replace("\t", "    ")
        for word in _WORD.findall(inert):
            self._place(word)
        self._out.flush()

    def _place(self, word: str) -> None:
        if word == "\n":
            self._line()
            return
        if self._column and self._column + cell_len(word.rstrip()) > self._room:
            self._line()
            word = word.lstrip()
        for number, part in enumerate(wrapped(word, self._room)):
            if number:
                self._line()
            if not self._began:
                self._line()
            self._out.write(part)
            self._column += cell_len(part)

    def _line(self) -> None:
        self._out.write(f"\n{GUTTER}" if self._began else GUTTER)
        self._began = True
        self._column = 0
