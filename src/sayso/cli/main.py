"""``sayso``: all of its commands."""

from __future__ import annotations

from sayso.cli import chat, deciding, demo, doctor, reading, serving, upkeep, working
from sayso.cli.audit import audit
from sayso.cli.policy import policy
from sayso.cli.shell import new_app, run
from sayso.cli.standing import grants, tokens

app = new_app()
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


def main() -> None:
    """Run the command line."""
    run(app)


if __name__ == "__main__":
    main()
