"""The text log: one record is one line, whatever a client sends."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from served import Serve

from sayso.server.logs import begin_logging

FORGED = "2026-11-16 12:00:00,000 INFO sayso.access POST /forged 200 in 1.0 ms"


@pytest.fixture
def text_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    kept = {
        name: (logger.handlers, logger.propagate, logger.level)
        for name in ("sayso", "uvicorn", "asyncio")
        for logger in [logging.getLogger(name)]
    }
    begin_logging()
    yield stderr
    for name, (handlers, propagate, level) in kept.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def records(stderr: io.StringIO) -> list[str]:
    return [line for line in stderr.getvalue().split("\n") if line]


def test_path_cannot_forge_a_record(serve: Serve, text_log: io.StringIO) -> None:
    client = serve().client()
    for bad in ("%0a", "%0d%0a", "%1b[2K%1b[1A", "%c2%85", "%e2%80%a8", "%00", "%e2%80%ae"):
        client.get(f"/api/{bad}{FORGED.replace(' ', '%20')}")
    lines = records(text_log)
    assert not any(line.startswith("2026-11-16 12:00:00,000") for line in lines)
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert sum("sayso.access" in line and "GET /api/%" in line for line in lines) == 7


@pytest.mark.parametrize("name", ["sayso.server", "sayso.worker", "uvicorn.error", "asyncio"])
def test_no_record_can_pass_for_two(text_log: io.StringIO, name: str) -> None:
    hostile = f"run\x1b[2K\r\n{FORGED}\u2028{FORGED}\x85\u202e"
    log = logging.getLogger(name)
    log.warning("run %s failed: %s", hostile, ValueError(hostile))
    try:
        raise ValueError(hostile)
    except ValueError:
        log.exception("it failed")
    lines = [line for line in text_log.getvalue().splitlines() if line]
    assert not any(line.startswith("2026-11-16 12:00:00,000") for line in lines)
    assert sum(not line.startswith("    ") for line in lines) == 2
    assert "\x1b" not in text_log.getvalue()


@pytest.mark.usefixtures("text_log")
def test_unexpected_error_is_only_in_the_log(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_logging(as_json=True)
    served = serve(auth=False)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a detail")

    monkeypatch.setattr(type(served.store), "grants", broken)
    answer = served.client().get("/api/grants")
    assert answer.status_code == 500
    assert answer.json() == {
        "error": "InternalError",
        "message": "internal error: see the server's log",
    }
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["message"] == "GET /api/grants failed"]
    assert line["level"] == "error"
    assert "RuntimeError: a detail" in line["error"]
