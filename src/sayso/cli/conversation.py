"""A conversation in the terminal: words, cards, decisions, and what came of them.

Whatever is skipped or left stays pending in the store, and the run stays paused: the same thread
goes on later, here or elsewhere. What somebody decides elsewhere is taken up at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime

from sayso import codec, text
from sayso.agent import Agent, Ended, Result, ToolEnded, ToolStarted
from sayso.agent.events import AgentEvent
from sayso.agent.models import ModelError
from sayso.channels.card import utc_now
from sayso.channels.layout import Line, name
from sayso.channels.prompt import ask
from sayso.channels.screen import LONGEST_LINE, Screen, Typed, Woken
from sayso.cli.agents import take_over
from sayso.cli.exits import Exit
from sayso.cli.marks import Marks, show_command
from sayso.cli.opening import Caller
from sayso.cli.views import subject
from sayso.errors import Conflict, NotFound, SaysoError
from sayso.inbox import Inbox
from sayso.rows import LIVE, Run
from sayso.stores.inner import inner_runs
from sayso.threads import leave_soon
from sayso.types import Request

#: What a line that begins with a slash does, and what the help says of it.
Command = tuple[str, Callable[[], None]]

_LAST_WORDS = 2
_SOON = 0.05
_HELP = {
    "/decide": "decide what waits",
    "/help": "this list",
    "/quit": "leave; Ctrl-D does the same",
}


class _Leave(Exception):
    """The person goes away."""


class _Waiting:
    """Keeps an eye on requests while the person may write something else."""

    def __init__(self, inbox: Inbox, requests: Sequence[Request]) -> None:
        self._inbox = inbox
        self._requests = requests

    def patience(self) -> float | None:
        """Seconds until the first of them expires."""
        ends: list[datetime] = [r.expires_at for r in self._requests if r.expires_at is not None]
        return max((min(ends) - utc_now()).total_seconds() + 0.05, 0.2) if ends else None

    def changed(self) -> bool:
        """Whether one of them does not wait any more."""
        return any(self._inbox.get_sync(r.id).status != "pending" for r in self._requests)


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
        #: The command that comes back here.
        self.again = again
        self.commands = dict(commands or {})
        self.inbox = Inbox(agent.store)
        self.marks = Marks(agent, plain=screen.plain)
        self._skipped: set[str] = set()
        self._running: set[str] = set()
        self._runner = asyncio.Runner()
        self._cut = False
        agent.listeners.append(self._track)
        take_over(agent)

    def run(self) -> None:
        """Talk until the person leaves."""
        try:
            result = self._come_back()
            while True:
                result = self._decide(result)
                result = self._listen(result)
        except (_Leave, KeyboardInterrupt):
            self.screen.say("")
        finally:
            if not self._cut:  # else it would wait for a tool in a thread, which nothing can stop
                self._runner.close()

    def goodbye(self) -> Exit:
        """Say what waits and how to come back; the exit code says whether something waits."""
        waiting = self._pending()
        if waiting:
            count = "1 request waits" if len(waiting) == 1 else f"{len(waiting)} requests wait"
            live = self.agent.store.live_run(self.thread) is not None
            why = "and the run is paused" if live else "to say how it ended"
            self.screen.say(f"{count} for a person, {why}.", "bold yellow")
        if self.agent.store.url.startswith("memory:"):
            self.screen.say("This agent keeps nothing: its store ends with this process.", "dim")
        else:
            show_command("To come back:", self.again)
        code = Exit.PENDING if waiting else Exit.OK
        if self._cut:
            leave_soon(code)
        return code

    # -- coming and going

    def _come_back(self) -> Result | None:
        """Go on with what waits or was cut short on this thread, after a look at what was said."""
        run = self.agent.store.last_run(self.thread)
        if run is None:
            return None
        if run.agent != self.agent.name:
            raise Conflict(
                f"thread {self.thread!r} belongs to agent {run.agent!r}: name another with --thread"
            )
        self._last_words()
        if run.status not in LIVE:
            return None
        return self._follow(self.agent.stream_resume(run.id))

    def _last_words(self) -> None:
        said = [codec.loads(body) for _, body in self.agent.store.messages(self.thread)]
        spoken = [m for m in said if m["role"] in ("user", "assistant") and m.get("content")]
        if spoken:
            self.screen.say("Earlier in this thread:", "dim")
        for message in spoken[-_LAST_WORDS:]:
            who = "you" if message["role"] == "user" else name(self.agent.name)
            self.screen.show([Line(text.inline(message["content"]), "dim", f"  {who} │ ")])

    def _pending(self) -> Sequence[Request]:
        run = self.agent.store.live_run(self.thread)
        if run is None:  # what was called off may have left a doubt
            return self.inbox.pending_sync(
                agent=self.agent.name, thread=self.thread, kind="in_doubt"
            ).items
        return self._waiting_in(run)

    def _waiting_in(self, run: Run) -> Sequence[Request]:
        """What a run waits for, and the agents that are tools in it."""
        found = self.inbox.pending_sync(agent=run.agent, thread=run.thread, limit=500).items
        inner = [self._waiting_in(one) for one in inner_runs(self.agent.store, run)]
        return [*found, *(request for requests in inner for request in requests)]

    # -- deciding

    def _decide(self, result: Result | None) -> Result | None:
        """Put what waits to the person, and go on, until it is over or the rest was skipped."""
        while result is not None and result.status == "paused":
            todo = [r for r in result.interruptions if r.id not in self._skipped]
            moved = [self._put(request) for request in todo]
            if not any(moved):
                return result
            result = self._go_on(result)
        return result

    def _put(self, request: Request) -> bool:
        """Whether there is something new to go on with."""
        outcome = ask(self.screen, self.who.desk(self.inbox, request))
        if outcome.how == "left":
            raise _Leave
        # A vote may not be the last one that is needed.
        if outcome.how in ("decided", "closed") and outcome.request.status != "pending":
            return True
        self._skipped.add(request.id)
        return False

    def _go_on(self, result: Result) -> Result | None:
        self.marks.closed(self.inbox.get_sync(r.id) for r in result.interruptions)
        return self._follow(self.agent.stream_resume(result.run))

    # -- listening

    def _listen(self, result: Result | None) -> Result | None:
        """Hear the person's next words, or what others decided, and do as told."""
        waiting = result.interruptions if result is not None and result.status == "paused" else ()
        self.marks.waiting(waiting)
        while True:
            try:
                typed = self._hear(waiting)
            except Woken:
                assert result is not None
                self._tell_who(waiting)
                return self._go_on(result)
            words = self._words(typed)
            if words == "/decide" and waiting:
                self._skipped.clear()
                return result
            if words.startswith("/") and not typed.pasted:
                self._command(words)
            elif words and self._may_send(waiting):
                self._skipped.clear()
                events = self.agent.stream(words, thread=self.thread, requester=self.who.name)
                return self._follow(events)

    def _hear(self, waiting: Sequence[Request]) -> Typed:
        hint = " (/decide what waits)" if waiting else ""
        self.screen.say("")
        with contextlib.ExitStack() as stack:
            watch = None
            if waiting:
                watch = _Waiting(self.inbox, waiting)
                for thread in {r.thread for r in waiting}:
                    listening = self.inbox.store.subscribe(thread, self.screen.wake)
                    stack.callback(listening.cancel)
                if watch.changed():
                    raise Woken
            typed = self.screen.ask(f"You{hint} >", watch)
        if typed is None:
            raise _Leave
        return typed

    def _words(self, typed: Typed) -> str:
        if len(typed.text) >= LONGEST_LINE and not typed.pasted:
            self.screen.say(f"A terminal cuts lines after {LONGEST_LINE:,} characters.", "yellow")
            return ""
        return typed.text.strip()

    def _may_send(self, waiting: Sequence[Request]) -> bool:
        """New words take the place of what waits: that is not done by accident."""
        if not waiting:
            return True
        what = " and ".join(subject(request) for request in waiting)
        self.screen.say(f"New words withdraw what waits: {what}.", "yellow")
        typed = self.screen.ask("Send them all the same? [y]es, [n]o >")
        return typed is not None and not typed.pasted and typed.text.strip().lower() == "y"

    def _command(self, words: str) -> None:
        if words == "/quit":
            raise _Leave
        if words in self.commands:
            self.commands[words][1]()
        elif words == "/decide":
            self.screen.say("Nothing waits.")
        else:
            if words != "/help":
                self.screen.say(f"There is no {text.inline(words)}. These are the commands:")
            known = {**{word: help for word, (help, _) in self.commands.items()}, **_HELP}
            lines = [Line(said, "", f"  {word:<8} ", "bold") for word, said in known.items()]
            self.screen.show(lines)

    def _tell_who(self, waiting: Iterable[Request]) -> None:
        for request in [self.inbox.get_sync(r.id) for r in waiting]:
            if request.decision is not None and request.status != "pending":
                by, how = name(request.decision.by), request.decision.type
                self.screen.say(f"{subject(request)}: {how} by {by}, elsewhere", "bold")

    # -- running

    def _follow(self, events: AsyncIterator[AgentEvent]) -> Result | None:
        """Show a run as it goes; nothing if it failed to start, or was stopped with Ctrl-C."""
        ours = not self._held()
        if not ours:
            self.screen.say("Another process works on this thread; waiting for it.", "yellow")
        self.marks.begin()
        try:
            return self._runner.run(self._show(events))
        except KeyboardInterrupt:
            self.marks.hush()
            if not ours:
                raise
            self._stop()
        except SaysoError as error:
            self.marks.hush()
            self.screen.say(text.inline(str(error)), "bold red")
            if ours and isinstance(error, ModelError):
                # Every call has its result by now; the next words go on from there, at once.
                self._runner.run(self._call_off("the model failed"))
        return None

    async def _show(self, events: AsyncIterator[AgentEvent]) -> Result | None:
        result = None
        async for event in events:
            self.marks(event)
            if isinstance(event, Ended):
                result = event.result
        return result

    def _held(self) -> bool:
        """Whether some process works on this thread's run right now."""
        store = self.agent.store
        run = store.live_run(self.thread)
        return run is not None and run.leased(store.now())

    def _stop(self) -> None:
        """Call the run off; a call that has begun is given time to end."""
        self.screen.say("")
        if self._running:
            self.screen.say("Stopping; what has begun is not cut short (Ctrl-C cuts it).", "yellow")
        try:
            self._runner.run(self._called_off())
        except KeyboardInterrupt:
            self._runner.run(_end_tasks())
            self._cut = True
            raise
        self.screen.say("Stopped.", "bold yellow")

    async def _called_off(self) -> None:
        await self._call_off("stopped by the user")
        while self._running:
            await asyncio.sleep(_SOON)
        await _end_tasks()

    async def _call_off(self, reason: str) -> None:
        with contextlib.suppress(NotFound):  # nothing was written yet, so nothing is to stop
            await self.agent.cancel(self.thread, by=self.who.name, reason=reason)

    def _track(self, event: AgentEvent) -> None:
        """Know what has begun and not ended, also while nobody shows it."""
        if isinstance(event, ToolStarted):
            self._running.add(event.id)
        elif isinstance(event, ToolEnded):
            self._running.discard(event.id)
        elif isinstance(event, Ended):
            self._running.clear()


async def _end_tasks() -> None:
    """Cut short what is still at work on this loop; a call that had begun is in doubt then."""
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def converse(agent: Agent, thread: str, who: Caller, screen: Screen, again: Sequence[str]) -> Exit:
    """Say where this is, and talk."""
    where = f"{name(agent.name)}, thread {name(thread)}, kept in {name(agent.store.url)}"
    screen.say(where, "dim")
    screen.say("Write something; /help shows what else there is, Ctrl-D ends.", "dim")
    talk = Conversation(agent, thread, who, screen, again=again)
    talk.run()
    return talk.goodbye()
