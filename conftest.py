"""Run every Python snippet of README.md, docs/ and the other Markdown pages.

A page is one session: its ```python blocks run from top to bottom in one namespace and one empty
working folder, as if a reader pasted them into a file. Only what the reader sees is run: hidden
blocks are not supported, and top-level ``await`` is a syntax error, as in any file.

Blocks in another language (text, console, toml, …) are not run. A Python block that cannot run has
a comment above it with the reason: ``<!-- not run: needs a key -->``. ``tests/test_house.py``
counts those, and refuses hidden blocks and fences with an unknown language.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

import hypothesis
import pytest
from memory_folder import memory_folder
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import pad
from sybil.integration.pytest import SybilItem
from sybil.parsers.abstract import AbstractCodeBlockParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

NOT_RUN = re.compile(r"<!-- not run: \S[^\n]* -->\s*\Z")

# Thousands of tests commit, and would mostly wait for the disk. Tests kill processes, which memory
# survives as well as a disk does; the test of lost power simulates its own disk.
_memory = memory_folder()
if "TMPDIR" not in os.environ and _memory is not None:
    os.environ["TMPDIR"] = tempfile.tempdir = _memory

# Tests start thousands of processes, and each would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nothing that is imported and collected becomes garbage, and there is a lot of it.
gc.disable()

# A process started in the background of a script ignores Ctrl-C, and so do its children. Some tests
# need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline, because the machine may be busy. Everything else is hypothesis's default.
hypothesis.settings.register_profile("sayso", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("sayso")


#: The files that take longest, roughly longest first. They start first, because a worker that
#: started one of them last would leave the others idle. `make test-all` keeps this order.
SLOWEST = (
    "audit/test_tamper_matrix.py",
    "stores/test_conformance.py",
    "server/test_openapi.py",
    "mcp/test_proxy_faults.py",
    "pages/test_pages_inbox.py",
    "cli/test_chat.py",
    "hooks/test_program.py",
    "adapters/test_claude_agent_guard.py",
    "stories/test_kill.py",
    "test_examples.py",
    "pages/test_pages_admin.py",
    "pages/test_pages_people.py",
    "cli/test_prompt.py",
    "laws/test_engine_properties.py",
    "hooks/test_hook_attacks.py",
    "adapters/test_story_langchain.py",
    "adapters/test_story_google_adk.py",
    "pages/test_pages_connections.py",
    "adapters/test_story_dspy.py",
    "adapters/test_five_frameworks.py",
    "gate/test_settle.py",
    "temporal/test_temporal_workflow.py",
    "cli/test_serve.py",
    "cli/test_stopping.py",
    "stores/test_postgres_settings.py",
    "stores/test_forks.py",
    "agent/models/test_openai_client.py",
    "adapters/test_story_pydantic_ai.py",
    "adapters/test_story_openai_agents.py",
    "stores/test_sqlite_lost_files.py",
    "faults/test_workers.py",
    "stores/test_verify_reports.py",
    "temporal/test_worker_temporal.py",
    "pages/test_pages_forms.py",
    "adapters/test_langchain_choke_points.py",
    "agent/test_agent_kill.py",
    "pages/test_pages_chat.py",
    "pages/test_pages_long_lists.py",
    "cli/test_prompt_concurrency.py",
    "server/test_worker_processes.py",
    "cli/test_demo.py",
    "cli/test_cli_conversation.py",
    "mcp/test_proxy_node.py",
    "stores/test_row_checks.py",
    "stores/test_postgres_leases.py",
    "agent/test_agent_wire.py",
    "pages/test_pages_first_look.py",
    "adapters/test_validators.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"
    rank = {tests / name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector off what was imported and collected, which every full collection
    would look through again."""
    gc.collect()
    gc.freeze()
    # Tests make many objects and few cycles: collecting as often as Python does by default takes a
    # fifth of the time of most tests.
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def full_strength(pytestconfig: pytest.Config) -> bool:
    """Whether the long tests run. Then a test with a shorter version runs the whole one."""
    return "not long" not in pytestconfig.getoption("markexpr")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Fail skipped tests in CI, with the reason for the skip.

    PgBouncer and nginx are exceptions: only the system's own packages provide them.
    """
    report = yield
    wrong = report.skipped and not hasattr(report, "wasxfail")
    excused = re.search("needs (PgBouncer|nginx)", str(report.longrepr))
    if os.environ.get("CI") and wrong and not excused:
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report


class Page:
    """The folder and the environment that the snippets of one page share."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
        with contextlib.chdir(self.folder.name), mock.patch.dict(os.environ, clean, clear=True):
            yield

    def close(self) -> None:
        self.folder.cleanup()


def set_up(namespace: dict[str, Any]) -> None:
    namespace.update(__name__="__main__", __page__=Page())


def tear_down(namespace: dict[str, Any]) -> None:
    page = namespace["__page__"]
    namespace.clear()
    page.close()


def run_snippet(example: Example) -> None:
    source = pad(example.parsed, example.line + example.parsed.line_offset)
    code = compile(source, example.path, "exec", dont_inherit=True)
    with example.namespace["__page__"].open():
        exec(code, example.namespace)


fences = FencedCodeBlockLexer(".+", mapping={"language": "arguments", "source": "source"})
python_blocks = AbstractCodeBlockParser([fences], "python", run_snippet)


def snippets(document: Document) -> Iterator[Region]:
    for region in python_blocks(document):
        if not NOT_RUN.search(document.text, 0, region.start):
            yield region


pytest_collect_file = Sybil(
    parsers=[snippets], patterns=["*.md"], setup=set_up, teardown=tear_down
).pytest()


# Sybil cuts a traceback so that it begins in the snippet. A coroutine that was never awaited is
# found after the snippet, with a traceback too short to cut (sybil 10.1), and would end the run.
shorten = SybilItem._traceback_filter


def shorten_if_long(item: SybilItem, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    return shorten(item, excinfo) if len(excinfo.traceback) > 1 else excinfo.traceback


SybilItem._traceback_filter = shorten_if_long
