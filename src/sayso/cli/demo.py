"""``sayso demo``: play with a scripted agent; no key, no configuration, nothing left behind."""

from __future__ import annotations

import json
import logging
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
from sayso.cli import options
from sayso.cli.exits import Exit, Usage
from sayso.cli.opening import Caller
from sayso.cli.serving import PORT, NoAuth, Port, link, open_browser
from sayso.inbox import os_user

if TYPE_CHECKING:
    from sayso.demo import Effects

_THREAD = "demo"
_WIDEST_WORDS = 36

Terminal = Annotated[bool, typer.Option("--terminal", help="Play it here, in the terminal.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Keep the store here, and go on with it next time."),
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")]


def demo(
    terminal: Terminal = False,
    data: Data = None,
    port: Port = PORT,
    no_open: NoOpen = False,
    no_auth: NoAuth = False,
    plain: options.Plain = False,
) -> None:
    """Play with a scripted agent on a page; no key, no configuration, nothing left behind.

    With --terminal you talk to it and decide in the terminal; where there is none, one round
    plays by itself, in which a scripted person decides.
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
    from sayso.server.logs import Log, begin_logging
    from sayso.server.serving import run

    begin_logging(Log.TEXT, logging.WARNING)
    app = demo_app(url, auth=auth)

    def ready(address: str) -> None:
        start = link(app, address) if auth else f"{address}/chat"
        print("Sayso: a durable yes or no for AI agents")
        print("A scripted agent: no key, no model, nothing real.")
        print("It asks before it acts, and you decide.")
        print(f"Open {start}")
        if auth:
            print("(that link signs you in once, within ten minutes;")
            print(f"the page is {address})")
        print("Ctrl-C ends it.", flush=True)
        if opens:
            open_browser(start)

    run(app, "127.0.0.1", port, ready)


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or one that is thrown away."""
    if data is None:
        with tempfile.TemporaryDirectory(prefix="sayso-demo-", ignore_cleanup_errors=True) as made:
            yield Path(made)
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
            "what really ran, as the tools themselves wrote it down",
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
            screen.say("It is thrown away now; --data DIR keeps it.", "dim")
            return Exit.OK
        finally:
            agent.gate.close()


def _first_screen(screen: Screen) -> None:
    from sayso.demo.script import SUGGESTIONS

    screen.say("Sayso: a durable yes or no for AI agents", "bold")
    screen.say("A scripted agent: no key, no model, nothing real.")
    screen.say("It asks before it acts, and you decide. Say for example:")
    screen.say("")
    for words, shows in SUGGESTIONS:
        beside = screen.width >= 2 * _WIDEST_WORDS
        head = f"  {words:<{_WIDEST_WORDS}} " if beside else f"  {words}"
        if beside:
            screen.show([Line(shows, "dim", head, "bold")])
        else:
            screen.show([Line(head, "bold"), Line(shows, "dim", "    ")])
    screen.say("")
    screen.say("/ran shows what really ran, /help the rest, Ctrl-D ends.", "dim")


def _show(screen: Screen, effects: Effects) -> None:
    rows = effects.all()
    screen.say("What really ran:" if rows else "Nothing ran.", "bold")
    for row in rows:
        at = datetime.fromisoformat(row["at"]).astimezone()
        args = text.inline(json.dumps(row["args"], ensure_ascii=False))
        short = args if len(args) <= 120 else f"{args[:120]}…"
        screen.show([Line(f"{name(row['tool'])} {short}", "", f"  {at:%H:%M:%S}  ")])
