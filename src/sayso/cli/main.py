"""Where ``sayso`` starts: its commands, and errors as one line with an exit code."""

from __future__ import annotations

import gc
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import sayso
from sayso import text
from sayso.cli.common import Exit, exit_of
from sayso.errors import SaysoError


class Commands(TyperGroup):
    """The commands. An error prints one line and sets an exit code, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SaysoError as error:
            print(f"sayso: {text.inline(str(error))}", file=sys.stderr)
            raise typer.Exit(exit_of(error)) from None
        except KeyboardInterrupt:
            print("\nsayso: interrupted; pending requests are still pending", file=sys.stderr)
            raise typer.Exit(Exit.PENDING) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sayso {sayso.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Human approval for AI agents. Nothing runs without your say-so."""


def new_app(only: str = "") -> typer.Typer:
    """Return the command line. ``only`` leaves out what ``serve`` or ``worker`` do not need."""
    app = typer.Typer(
        name="sayso",
        cls=Commands,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    from sayso.cli import serve

    if only:
        app.command(only)(getattr(serve, only))
        return app

    from sayso.cli import admin, chat, decide, doctor, inbox

    app.command("demo")(chat.demo)
    app.command("serve")(serve.serve)
    app.command("worker")(serve.worker)
    app.command("chat")(chat.chat)
    app.command("inbox")(inbox.inbox)
    app.command("show")(inbox.show_request)
    app.command("approve")(decide.approve)
    app.command("reject")(decide.reject)
    app.command("edit")(decide.edit)
    app.command("respond")(decide.respond)
    app.command("cancel")(decide.cancel)
    app.command("history")(inbox.history)
    app.add_typer(admin.grants, name="grants")
    app.add_typer(admin.tokens, name="token")
    app.add_typer(admin.policy, name="policy")
    app.add_typer(admin.audit, name="audit")
    app.command("recover")(admin.recover)
    app.command("prune")(admin.prune)
    app.command("doctor")(doctor.doctor)
    return app


def main() -> None:
    """Run the command line."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    # Servers and workers restart often, and something waits for them: load only what they need.
    only = name if name in ("serve", "worker") else ""
    if only:
        gc.disable()  # until it is up: nothing that is loaded now becomes garbage
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a character that the terminal cannot show becomes its number
            reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(Exit.PENDING))
    new_app(only)(prog_name="sayso")


if __name__ == "__main__":
    main()
