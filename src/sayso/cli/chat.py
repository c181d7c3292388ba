"""``sayso chat``: talk to an agent in the terminal or from a script. ``sayso demo``: try Sayso."""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sayso import text
from sayso.channels.layout import Line, name
from sayso.channels.screen import Screen, can_prompt
from sayso.cli import common
from sayso.cli.common import Caller, Exit, Usage, caller
from sayso.cli.serve import PORT, NoAuth, Port, open_browser, sign_in_link
from sayso.inbox import Inbox, os_user

if TYPE_CHECKING:
    from sayso.demo import Effects

Target = Annotated[
    str,
    typer.Argument(metavar="MODULE:ATTRIBUTE", help="An agent, or a function that returns one."),
]
Thread = Annotated[
    str | None,
    typer.Option("--thread", metavar="NAME", help="The conversation to start or continue."),
]
Said = Annotated[
    str | None,
    typer.Option("--message", metavar="TEXT", help="Send one message, print the result, and exit."),
]


def chat(
    target: Target,
    thread: Thread = None,
    message: Said = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Talk to an agent, and decide its requests.

    Requests that you skip stay pending, and you can continue the same thread later. Without a
    terminal, reads one message from stdin and does not prompt: exit code 3 means that the run waits
    for a decision.
    """
    from sayso.cli.load_agents import load_agent  # imports pydantic, which few commands need

    agent = load_agent(target, store)
    thread = thread or f"chat-{secrets.token_hex(3)}"
    again = ["sayso", "chat", target, "--thread", thread]
    if store != common.DEFAULT_STORE or os.environ.get("SAYSO_STORE"):
        again += ["--store", store]
    try:
        who = caller(Inbox(agent.store), token_file)
        if message is None and not json and can_prompt():
            from sayso.cli.conversation import converse

            with closing(Screen(plain=plain)) as screen:
                code = converse(agent, thread, who, screen, again)
        else:
            from sayso.cli.conversation import once

            words = message or ""
            if message is None and sys.stdin is not None and not sys.stdin.closed:
                words = "" if sys.stdin.isatty() else sys.stdin.read()
            code = once(agent, thread, who, words, again, json=json, plain=plain)
    finally:
        agent.gate.close()
    raise typer.Exit(code)


# -- demo

_THREAD = "demo"
_WORDS_WIDTH = 36
_INTRODUCTION = (
    "Sayso: human approval for AI agents",
    "A scripted agent: no API key, no model, no real effects.",
    "It asks before it acts, and you decide.",
)

Terminal = Annotated[bool, typer.Option("--terminal", help="Run the demo in this terminal.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Keep the store in this folder, to continue later."),
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")]


def demo(
    terminal: Terminal = False,
    data: Data = None,
    port: Port = PORT,
    no_open: NoOpen = False,
    no_auth: NoAuth = False,
    plain: common.Plain = False,
) -> None:
    """Try Sayso with a scripted agent.

    Needs no API key and no configuration, and leaves nothing behind. Opens the web app. With
    --terminal you chat and decide in the terminal; if there is none, a scripted person decides.
    """
    with _folder(data) as folder:
        url = f"sqlite:///{folder / 'sayso.db'}"
        if not terminal:
            _serve(url, port, opens=not no_open, auth=not no_auth)
            return
        if can_prompt():
            code = _talk(url, data, plain=plain)
        else:
            from sayso.demo.tour import play

            code = Exit(play(url))
    raise typer.Exit(code)


def _serve(url: str, port: int, *, opens: bool, auth: bool) -> None:
    from sayso.demo.web import demo_app
    from sayso.server.logs import begin_logging
    from sayso.server.serving import run

    begin_logging(level=logging.WARNING)
    app = demo_app(url, auth=auth)

    def ready(address: str) -> None:
        start = sign_in_link(app, address) if auth else f"{address}/inbox"
        print("\n".join(_INTRODUCTION))
        print(f"Open {start}")
        if auth:
            print("(The link signs you in once, within ten minutes.")
            print(f" The web app is at {address})")
        print("Press Ctrl-C to stop.", flush=True)
        if opens:
            open_browser(start)

    run(app, "127.0.0.1", port, ready)


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """Yield the folder given by ``--data``, or a temporary one."""
    if data is None:
        with tempfile.TemporaryDirectory(
            prefix="sayso-demo-", ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)
        return
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Usage(f"--data {data}: {error.strerror}") from None
    yield data.absolute()


def _talk(url: str, data: Path | None, *, plain: bool) -> Exit:
    from sayso import demo as played
    from sayso.cli.conversation import Conversation

    effects = played.Effects.beside(url)
    agent = played.agent(url, effects)
    with closing(Screen(plain=plain)) as screen:
        ran = (
            "show which tools really ran, from their own log",
            lambda: _show(screen, effects),
        )
        _first_screen(screen)
        again = ["sayso", "demo", "--terminal", *([] if data is None else ["--data", str(data)])]
        talk = Conversation(
            agent, _THREAD, Caller(os_user()), screen, again=again, commands={"/ran": ran}
        )
        try:
            talk.run()
            _show(screen, effects)
            if data is not None:
                return talk.goodbye()
            screen.say("This demo's data is deleted now. Use --data DIR to keep it.", "dim")
            return Exit.OK
        finally:
            agent.gate.close()


def _first_screen(screen: Screen) -> None:
    from sayso.demo.script import SUGGESTIONS

    headline, nature, promise = _INTRODUCTION
    screen.say(headline, "bold")
    screen.say(nature)
    screen.say(f"{promise} Try one of these:")
    screen.say("")
    for words, shows in SUGGESTIONS:
        beside = screen.width >= 2 * _WORDS_WIDTH
        head = f"  {words:<{_WORDS_WIDTH}} " if beside else f"  {words}"
        if beside:
            screen.show([Line(shows, "dim", head, "bold")])
        else:
            screen.show([Line(head, "bold"), Line(shows, "dim", "    ")])
    screen.say("")
    screen.say("/ran: show what really ran. /help: commands. Ctrl-D: exit.", "dim")


def _show(screen: Screen, effects: Effects) -> None:
    rows = effects.all()
    screen.say("What really ran:" if rows else "Nothing ran.", "bold")
    for row in rows:
        at = datetime.fromisoformat(row["at"]).astimezone()
        args = text.inline(json.dumps(row["args"], ensure_ascii=False))
        short = args if len(args) <= 120 else f"{args[:120]}…"
        screen.show([Line(f"{name(row['tool'])} {short}", "", f"  {at:%H:%M:%S}  ")])
