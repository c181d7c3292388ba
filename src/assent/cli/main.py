"""``assent``: the commands, and what happens when one of them fails."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

import assent
from assent import text
from assent.cli import chat, deciding, demo, doctor, reading, serving, upkeep, working
from assent.cli.audit import audit
from assent.cli.exits import Exit, exit_of
from assent.cli.policy import policy
from assent.cli.standing import grants, tokens
from assent.errors import AssentError


class Commands(TyperGroup):
    """All commands; an error is one clear line and an exit code, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AssentError as error:
            print(f"assent: {text.inline(str(error))}", file=sys.stderr)
            raise typer.Exit(exit_of(error)) from None
        except KeyboardInterrupt:
            print("\nassent: interrupted; what was pending is still pending", file=sys.stderr)
            raise typer.Exit(Exit.PENDING) from None


app = typer.Typer(
    name="assent",
    cls=Commands,
    help="A durable yes or no for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("serve")(serving.serve)
app.command("worker")(working.worker)
app.command("chat")(chat.chat)
app.command("inbox")(reading.inbox)
app.command("show")(reading.show_request)
app.command("approve")(deciding.approve)
app.command("reject")(deciding.reject)
app.command("edit")(deciding.edit)
app.command("respond")(deciding.respond)
app.command("cancel")(deciding.cancel)
app.command("history")(reading.history)
app.add_typer(grants, name="grants")
app.add_typer(tokens, name="token")
app.add_typer(policy, name="policy")
app.add_typer(audit, name="audit")
app.command("recover")(upkeep.recover)
app.command("prune")(upkeep.prune)
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"assent {assent.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable yes or no for AI agents."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail(stream)
    signal.signal(signal.SIGTERM, _terminated)
    app(prog_name="assent")


def _never_fail(stream: TextIO | None) -> None:
    """A terminal that cannot show a character shows its number."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _terminated(number: int, frame: object) -> None:
    sys.exit(Exit.PENDING)


if __name__ == "__main__":
    main()
