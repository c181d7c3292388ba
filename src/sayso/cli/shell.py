"""What every command of ``sayso`` has around it: one clear line for an error, and a version."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

import sayso
from sayso import text
from sayso.cli.exits import Exit, exit_of
from sayso.errors import SaysoError


class Commands(TyperGroup):
    """All commands; an error is one clear line and an exit code, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SaysoError as error:
            print(f"sayso: {text.inline(str(error))}", file=sys.stderr)
            raise typer.Exit(exit_of(error)) from None
        except KeyboardInterrupt:
            print("\nsayso: interrupted; what was pending is still pending", file=sys.stderr)
            raise typer.Exit(Exit.PENDING) from None


def new_app() -> typer.Typer:
    """A command line without commands yet."""
    app = typer.Typer(
        name="sayso",
        cls=Commands,
        help="A durable yes or no for AI agents.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sayso {sayso.__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable yes or no for AI agents."""


def run(app: typer.Typer) -> None:
    """Do what the arguments say."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail(stream)
    signal.signal(signal.SIGTERM, _terminated)
    app(prog_name="sayso")


def _never_fail(stream: TextIO | None) -> None:
    """A terminal that cannot show a character shows its number."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _terminated(number: int, frame: object) -> None:
    sys.exit(Exit.PENDING)
