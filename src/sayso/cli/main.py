"""``sayso``: all of its commands."""

from __future__ import annotations

from sayso.cli.common import run
from sayso.cli.entry import app_of

app = app_of()

if __name__ == "__main__":
    run(app)
