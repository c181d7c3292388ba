"""Logging to stderr for servers and workers, as text or as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
import time
from enum import Enum


class Log(Enum):
    """The format of the log."""

    TEXT = "text"
    JSON = "json"


def begin_logging(form: Log, level: int = logging.INFO) -> None:
    """Log to stderr: one line per request, per step of the worker, and per problem."""
    handler = logging.StreamHandler(sys.stderr)
    if form is Log.JSON:
        handler.setFormatter(_Json())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger("sayso")
    root.handlers, root.propagate = [handler], False
    root.setLevel(level)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "at": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("request_id", "status", "seconds"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        if (step := getattr(record, "step", None)) is not None:
            line |= {
                name: value for name, value in step._asdict().items() if value not in ("", None)
            }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)
