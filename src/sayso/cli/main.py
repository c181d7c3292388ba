"""``sayso``: all of its commands."""

from __future__ import annotations

from sayso.cli import admin, chat, decide, doctor, hook, inbox, proxy, serve
from sayso.cli.common import new_app, run

app = new_app()
app.command("demo")(chat.demo)
app.command("serve")(serve.serve)
app.command("worker")(serve.worker)
app.command("chat")(chat.chat)
app.command("proxy")(proxy.proxy)
app.command("mcp")(proxy.advisory)
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
app.add_typer(hook.hook, name="hook")
app.command("recover")(admin.recover)
app.command("prune")(admin.prune)
app.command("doctor")(doctor.doctor)

if __name__ == "__main__":
    run(app)
