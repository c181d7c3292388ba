"""``sayso chat``: talk to an agent in the terminal, or put one message to it from a script."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import closing
from typing import Annotated

import typer

from sayso.channels.screen import Screen, can_prompt
from sayso.cli import options
from sayso.cli.opening import caller
from sayso.inbox import Inbox

Target = Annotated[
    str,
    typer.Argument(metavar="MODULE:ATTRIBUTE", help="An agent, or a function that makes one."),
]
Thread = Annotated[
    str | None,
    typer.Option("--thread", metavar="NAME", help="The conversation to begin or go on with."),
]
Said = Annotated[
    str | None,
    typer.Option("--message", metavar="TEXT", help="Say this, print what comes of it, and end."),
]


def chat(
    target: Target,
    thread: Thread = None,
    message: Said = None,
    json: options.AsJson = False,
    plain: options.Plain = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Talk to an agent, and decide what it asks for.

    What is skipped or left stays pending, and the same thread goes on later. Without a terminal one
    message is read from stdin and nobody is asked: code 3 says that the run waits for a person.
    """
    from sayso.cli.agents import load_agent  # brings pydantic, which no other command needs

    agent = load_agent(target, store)
    thread = thread or f"chat-{secrets.token_hex(3)}"
    again = ["sayso", "chat", target, "--thread", thread, *_store_option(store)]
    try:
        who = caller(Inbox(agent.store), token_file)
        if message is None and not json and can_prompt():
            from sayso.cli.conversation import converse

            with closing(Screen(plain=plain)) as screen:
                code = converse(agent, thread, who, screen, again)
        else:
            from sayso.cli.once import once

            words = message if message is not None else _from_stdin()
            code = once(agent, thread, who, words, again, json=json, plain=plain)
    finally:
        agent.gate.close()
    raise typer.Exit(code)


def _store_option(store: str) -> list[str]:
    is_default = store == options.DEFAULT_STORE and not os.environ.get("SAYSO_STORE")
    return [] if is_default else ["--store", store]


def _from_stdin() -> str:
    """What a script writes to us; a terminal is not waited for."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    return sys.stdin.read()
