"""Approvals inside a Temporal workflow.

In a workflow: ``await ask(...)``, ``await confirm(...)``, ``await run_once("refund", {...})``. On
the worker: ``SaysoPlugin(gate, tools=[refund])``. The request is in the store and is decided like
any other; a workflow that waits costs what a sleeping workflow costs.

Short activities ask and check, a signal says when to check again, a durable timer checks even
without a signal, and the tool is an activity with one attempt. Workflow code never touches the
store, and nothing in a signal is trusted.

Read ``workflow.py`` first, then ``worker.py``.
"""

from __future__ import annotations

from sayso.adapters import check_versions

check_versions("temporal")  # before an import that may take seconds
try:
    import temporalio.plugin as _found  # noqa: F401
except ImportError as error:
    raise ImportError(
        'Temporal is not installed: pip install "sayso[temporal]"', name=error.name
    ) from error

from sayso.adapters.temporal.worker import SaysoPlugin
from sayso.adapters.temporal.workflow import ask, confirm, run_once

__all__ = ["SaysoPlugin", "ask", "confirm", "run_once"]
