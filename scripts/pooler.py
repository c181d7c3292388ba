"""Print the path of PgBouncer, which tests put between themselves and PostgreSQL.

Where there is none, and this is root on Debian, its package is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

_FOLDERS = ("/usr/sbin", "/usr/local/sbin")


def find() -> str | None:
    """The program, if it is here already."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *_FOLDERS))
    return shutil.which("pgbouncer", path=path)


def fetch() -> None:
    """Install it."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return
    quiet = {"stdout": sys.stderr, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-q"], check=False, **quiet)
    command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "pgbouncer"]
    subprocess.run(command, check=False, **quiet)


def main() -> int:
    """Find it, else fetch it."""
    if find() is None:
        print("No PgBouncer here: fetching it for the tests of the stores ...", file=sys.stderr)
        fetch()
    path = find()
    if path is None:
        print("There is no PgBouncer, and it could not be fetched.", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
