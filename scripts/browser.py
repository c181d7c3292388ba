"""Print the path of a Chromium that tests can drive; fetch one where there is none.

As root on Debian its own package is taken, elsewhere the browser that Playwright brings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find() -> str | None:
    """A browser that is here already; ``ASSENT_TEST_BROWSER`` names one."""
    named = os.environ.get("ASSENT_TEST_BROWSER")
    if named:
        return named
    on_path = next((path for name in _NAMES if (path := shutil.which(name))), None)
    return on_path or _playwrights_own()


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def fetch() -> None:
    """Install one."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        quiet = {"stdout": sys.stderr, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-q"], check=False, **quiet)
        packages = ["chromium", "fonts-dejavu-core"]
        command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages]
        if subprocess.run(command, check=False, **quiet).returncode == 0:
            return
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    subprocess.run(command, check=False, stdout=sys.stderr)


def main() -> int:
    """Find one, else fetch one."""
    if find() is None:
        print("No Chromium here: fetching one for the tests of the pages ...", file=sys.stderr)
        fetch()
    path = find()
    if path is None:
        print("There is no Chromium, and none could be fetched.", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
