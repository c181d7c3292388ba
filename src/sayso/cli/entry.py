"""Where the ``sayso`` script starts.

Servers, workers and proxies start often, and something waits for them. So they load only their own
commands. Scripts ask for the version often, and that loads nothing. A coding agent runs ``sayso
hook run`` before each tool use, so that loads the standard library only.
"""

from __future__ import annotations

import gc
import signal
import sys

from sayso import __version__

#: Packages of the extra ``server``, which ``serve``, ``demo`` and a worker's metrics need.
_SERVER = {"fastapi", "httptools", "prometheus_client", "standardwebhooks", "starlette", "uvicorn"}


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while it loads ends it at once
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if sys.argv[1:] == ["--version"]:
        print(f"sayso {__version__}")
        return
    if sys.argv[1:3] == ["hook", "run"]:
        from sayso.hooks.program import main as hook

        hook(sys.argv[3:])
    from sayso.cli.common import new_app, run

    try:
        if name in ("serve", "worker"):
            gc.disable()  # until it is up: nothing that is loaded now becomes garbage
            from sayso.cli import serve

            app = new_app()
            app.command(name)(getattr(serve, name))
        elif name in ("proxy", "mcp"):
            from sayso.cli.proxy import advisory, proxy

            app = new_app()
            app.command(name)(proxy if name == "proxy" else advisory)
        else:
            from sayso.cli.main import app
        run(app)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in _SERVER:
            raise
        print(
            f"sayso {name} needs the web server. Install it with:\n\n"
            "    pip install 'sayso[server]'",
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
