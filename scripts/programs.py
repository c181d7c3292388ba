"""Print the path of a program that tests need, ``chromium``, ``nginx`` or ``pgbouncer``.

If it is missing, as root on Debian install the system package; elsewhere, Playwright installs a
browser.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

#: First one without a window, in which tests take half the time.
_BROWSERS = (
    *("chromium-headless-shell", "chromium", "chromium-browser"),
    *("google-chrome-stable", "google-chrome"),
)
#: Packages of Debian, the best first. Not every release has the first one.
_PACKAGES = {
    "chromium": ("chromium-headless-shell", "chromium"),
    "nginx": ("nginx-light",),
    "pgbouncer": ("pgbouncer",),
}
#: Folders of system programs that may not be on the path.
_SYSTEM = ("/usr/sbin", "/usr/local/sbin")


def chromium() -> str | None:
    """Return an installed browser. ``SAYSO_TEST_BROWSER`` overrides it."""
    named = os.environ.get("SAYSO_TEST_BROWSER")
    if named:
        return named
    on_path = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    return on_path or _playwrights_own()


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def uv() -> str:
    """Return the path of uv, which the Makefile installs where there is none."""
    path = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if path is None:
        raise SystemExit("this needs uv: pip install uv")
    return path


def pgbouncer() -> str | None:
    """Return PgBouncer, if it is installed."""
    return _system_program("pgbouncer")


def nginx() -> str | None:
    """Return nginx, if it is installed."""
    return _system_program("nginx")


def _system_program(name: str) -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), *_SYSTEM))
    return shutil.which(name, path=path)


def fetch(name: str) -> None:
    """Install a program."""
    fonts = ["fonts-dejavu-core"] if name == "chromium" else []
    installed = any(_installed([package, *fonts]) for package in _PACKAGES[name])
    if not installed and name == "chromium":
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        subprocess.run(command, check=False, stdout=sys.stderr)


def _installed(packages: list[str]) -> bool:
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    quiet = {"stdout": sys.stderr, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-q"], check=False, **quiet)
    command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages]
    return subprocess.run(command, check=False, **quiet).returncode == 0


def main(name: str) -> int:
    """Find a program, or install it."""
    find = {"chromium": chromium, "nginx": nginx, "pgbouncer": pgbouncer}[name]
    if find() is None:
        print(f"{name} is not installed: fetching it for the tests ...", file=sys.stderr)
        fetch(name)
    path = find()
    if path is None:
        print(
            f"{name} is not installed, and could not be fetched. Install it, on Debian with "
            f"`sudo apt-get install {_PACKAGES[name][0]}`.",
            file=sys.stderr,
        )
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=sorted(_PACKAGES))
    sys.exit(main(parser.parse_args().name))
