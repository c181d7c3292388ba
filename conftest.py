"""Runs every Python snippet of README.md, docs/ and the other Markdown pages.

A page is one session: its ```python blocks run from top to bottom in one namespace, one event loop
and one empty working folder of its own, so that ``sqlite:///sayso.db`` means a fresh file. A
snippet may ``await`` at its top level. What a page needs but a reader does not (a person who
decides, say) stands in a comment: ``<!-- invisible-code-block: python`` … ``-->``.

Blocks in another language (text, console, toml, …) are not run as Python. A Python block that
cannot run at all has a comment above it that says why: ``<!-- not run: needs a key -->``.
``tests/test_house.py`` counts those, and refuses fences with an unknown language.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

import hypothesis
import pytest
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import pad
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import CodeBlockParser

NOT_RUN = re.compile(r"<!-- not run: \S[^\n]* -->\s*\Z")

# Thousands of tests that commit wait for the disk above all. What dies in them are processes, and
# memory outlives those as well as a disk does; the one test of lost power forgets by itself.
_MEMORY = "/dev/shm"
_ENOUGH = 4 << 30
_free = shutil.disk_usage(_MEMORY).free if os.access(_MEMORY, os.W_OK) else 0
if "TMPDIR" not in os.environ and _free > _ENOUGH:
    os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY

# What a script starts in its background ignores Ctrl-C, and so does all that it starts: some tests
# press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no bug; everything else stays as hypothesis chose (it knows CI by itself).
hypothesis.settings.register_profile("sayso", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("sayso")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """In CI nothing is skipped: what is missing there fails, and says what it was.

    But PgBouncer, which only a system's own packages bring.
    """
    report = yield
    wrong = report.skipped and not hasattr(report, "wasxfail")
    if os.environ.get("CI") and wrong and "needs PgBouncer" not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report


class Page:
    """The folder, the environment and the event loop that the snippets of one page share."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
        with contextlib.chdir(self.folder.name), mock.patch.dict(os.environ, clean, clear=True):
            yield

    def close(self) -> None:
        with self.open():
            self.runner.close()
        self.folder.cleanup()


def set_up(namespace: dict[str, Any]) -> None:
    namespace.update(__name__="__main__", __page__=Page())


def tear_down(namespace: dict[str, Any]) -> None:
    page = namespace["__page__"]
    namespace.clear()
    page.close()


def run_snippet(example: Example) -> None:
    source = pad(example.parsed, example.line + example.parsed.line_offset)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, example.path, "exec", flags=flags, dont_inherit=True)
    page = example.namespace["__page__"]
    with page.open():
        if code.co_flags & inspect.CO_COROUTINE:
            page.runner.run(eval(code, example.namespace))
        else:
            exec(code, example.namespace)


python_blocks = CodeBlockParser(language="python", evaluator=run_snippet)


def snippets(document: Document) -> Iterator[Region]:
    for region in python_blocks(document):
        if not NOT_RUN.search(document.text, 0, region.start):
            yield region


pytest_collect_file = Sybil(
    parsers=[snippets], patterns=["*.md"], setup=set_up, teardown=tear_down
).pytest()


# Sybil cuts a traceback so that it begins in the snippet. A coroutine that nobody awaited is found
# after the snippet, with a traceback too short to cut (sybil 10.1), and the whole run would end.
shorten = SybilItem._traceback_filter


def shorten_if_long(item: SybilItem, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    return shorten(item, excinfo) if len(excinfo.traceback) > 1 else excinfo.traceback


SybilItem._traceback_filter = shorten_if_long
