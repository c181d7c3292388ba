"""What the scripts that generate documentation share: write a page, or check that it is current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def replace_between(text: str, begin: str, end: str, content: str) -> str:
    """Return a page with new content between two marker lines."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{content}{end}{after}"


def update(page: Path, text: str, description: str | None) -> int:
    """Write a page; with ``--check`` on the command line, return 1 if it is out of date."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    if not parser.parse_args().check:
        page.write_text(text, "utf-8")
        return 0
    if page.exists() and page.read_text("utf-8") == text:
        return 0
    print(f"{page.name} is not up to date: run `make docs`", file=sys.stderr)
    return 1
