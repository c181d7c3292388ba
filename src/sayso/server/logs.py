"""Logging to stderr for servers and workers, as text or as JSON lines.

A record may quote what came over the network: a path, a name, an error of another server.
In a text log, each record is one line, its hidden characters are visible, and a traceback is
indented below it, so that no text can pass for another record.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from sayso.text import inline


def begin_logging(*, as_json: bool = False, level: int = logging.INFO) -> None:
    """Log to stderr: one line per request, per step of the worker, and per problem."""
    handler = logging.StreamHandler(sys.stderr)
    text = _Text("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(_Json() if as_json else text)
    for name in ("sayso", *_OTHERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level if name == "sayso" else logging.WARNING)


#: Libraries that log on behalf of the server; their records quote its clients as well.
_OTHERS = ("uvicorn", "asyncio")


class _Text(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = inline(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"    {inline(line)}" for line in lines)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "at": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (step := getattr(record, "step", None)) is not None:
            line |= {
                name: value for name, value in step._asdict().items() if value not in ("", None)
            }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)
