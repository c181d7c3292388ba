"""Where ``sayso`` begins.

What runs for long starts often, too, after a crash or an update, and somebody waits for it. So a
server and a worker are not kept by the commands that they do not need.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from sayso.cli.shell import new_app, run

_ALONE = {"serve": "sayso.cli.serving", "worker": "sayso.cli.working"}


#: Packages of the extra ``server``, which ``serve``, ``demo`` and a worker's metrics need.
_SERVER = {"fastapi", "httptools", "prometheus_client", "standardwebhooks", "starlette", "uvicorn"}


def main() -> None:
    """Run the command line."""
    try:
        _main()
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in _SERVER:
            raise
        command = sys.argv[1] if len(sys.argv) > 1 else "this command"
        print(
            f"sayso {command} needs the web server. Install it with:\n\n"
            "    pip install 'sayso[server]'",
            file=sys.stderr,
        )
        sys.exit(1)


def _main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in _ALONE:
        gc.disable()  # until it is up: nothing of what is loaded now is garbage
        app = new_app()
        app.command(name)(getattr(import_module(_ALONE[name]), name))
    else:
        from sayso.cli.main import app
    run(app)


if __name__ == "__main__":
    main()
