"""What an agent does, on the screen: its words as they come, and a mark for each call.

``▸`` it runs, ``✓`` it ran or was answered, ``✗`` it did not run or failed, ``…`` it waits.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sayso import codec, text
from sayso.agent import Agent, Ended, Result, Text, ToolEnded, ToolStarted
from sayso.agent.events import AgentEvent
from sayso.channels.layout import Line, name
from sayso.channels.screen import console, show, width_of
from sayso.cli.speech import Speech
from sayso.cli.views import cut, subject
from sayso.hiding import declared
from sayso.rows import Call
from sayso.types import Json, Request

_LONG = 500
_CLOSED = {
    "expired": "nobody decided in time",
    "cancelled": "it was cancelled",
    "superseded": "you wrote something new",
}


class Marks:
    """Shows one agent's events on one screen."""

    def __init__(self, agent: Agent, *, plain: bool = False) -> None:
        self._agent = agent
        self._plain = plain
        self._speech: Speech | None = None
        self._spoke = False

    def __call__(self, event: AgentEvent) -> None:
        """Show one event."""
        if isinstance(event, Text):
            self._say(event.text)
            return
        self.hush()
        if isinstance(event, ToolStarted):
            self._started(event)
        elif isinstance(event, ToolEnded):
            self._ended(event)
        elif isinstance(event, Ended):
            self._result(event.result)

    def begin(self) -> None:
        """A new step: nothing was said in it so far."""
        self._spoke = False

    def hush(self) -> None:
        """End the words that are on their way."""
        if self._speech is not None:
            self._speech.end()
            self._speech = None

    def line(self, mark: str, words: str, style: str) -> None:
        """One mark; the words are inert already, and cut where two rows are full."""
        target = console(plain=self._plain)
        shown = cut(words, 2 * target.width - 12)
        show(target, [Line(shown, "", f"  {mark} ", style)])

    def _say(self, piece: str) -> None:
        if self._speech is None:
            show(console(plain=self._plain), [Line(name(self._agent.name), "bold cyan")])
            self._speech = Speech(sys.stdout, width_of(sys.stdout))
        self._spoke = True
        self._speech.add(piece)

    def _started(self, event: ToolStarted) -> None:
        call = self._agent.store.call(event.id)
        words = name(event.tool)
        if call is not None:
            face = self._agent.store.tool(call.tool_digest)
            schema = None if face is None else codec.loads(face.schema)["parameters"]
            words += _in_brackets(declared(codec.loads(call.args), schema))
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
            self.line("✓", f"{name(event.tool)} ran: {_result(call)}", "bold green")

    def _result(self, result: Result) -> None:
        if result.status == "done" and not self._spoke and isinstance(result.output, str):
            self._say(result.output)
            self.hush()
        elif result.status not in ("done", "paused"):
            error = text.inline(result.error[:_LONG])
            self.line("✗", f"The run is {result.status}: {error}", "bold red")

    def closed(self, requests: Iterable[Request]) -> None:
        """Say of requests that were closed without a run how that came."""
        for request in requests:
            for mark, words, style in _closed(request):
                self.line(mark, words, style)

    def waiting(self, requests: Iterable[Request]) -> None:
        """Say what waits for a person."""
        for request in requests:
            self.line("…", f"{subject(request)} waits for a person: {request.id}", "bold yellow")


def show_command(label: str, command: Sequence[str]) -> None:
    """A command to copy: whole, in one line, however narrow the terminal is."""
    print(f"{label} {text.inline(shlex.join(command))}", flush=True)


def _closed(request: Request) -> Iterator[tuple[str, str, str]]:
    what, decided = subject(request), request.decision
    if request.status == "rejected" and decided is not None:
        why = f": {text.inline(decided.message)}" if decided.message else ""
        how = "is not answered" if request.question is not None else "did not run"
        yield "✗", f"{what} {how}, rejected by {name(decided.by)}{why}", "bold red"
    elif request.status == "responded" and decided is not None:
        value = _short(codec.dumps(decided.value), as_json=True)
        how = "answered" if request.question is not None else "did not run, result given"
        yield "✓", f"{what} {how} by {name(decided.by)}: {value}", "bold green"
    elif request.status in _CLOSED:
        yield "✗", f"{what} did not run: {_CLOSED[request.status]}", "bold red"


def _in_brackets(args: Mapping[str, Json]) -> str:
    parts = [f"{name(key)}={_short(codec.dumps(args[key]), as_json=True)}" for key in args]
    return f"({', '.join(parts)})"


def _result(call: Call) -> str:
    return _short(call.result or "null", as_json=True)


def _short(value: str, *, as_json: bool = False) -> str:
    """A value in one line; a text without its quotes."""
    if as_json:
        parsed = codec.loads(value)
        value = parsed if isinstance(parsed, str) else value
    return text.inline(value[:_LONG]) + "…" * (len(value) > _LONG)
