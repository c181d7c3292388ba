"""Approvals inside a Temporal workflow.

In a workflow: ``await ask(...)``, ``await confirm(...)``, ``await run_once("refund", {...})``. On
the worker: ``SaysoPlugin(gate, tools=[refund])``. The request is in the store and is decided like
any other; a workflow that waits costs what a sleeping workflow costs.

Short activities ask and check, a signal says when to check again, a durable timer checks even
without a signal, and the tool is an activity with one attempt. Workflow code never touches the
store, and nothing in a signal is trusted.

Read ``workflow.py`` first, then ``worker.py``.
"""

from sayso.adapters import require

require("temporal", "temporalio.plugin", "Temporal is not installed")

from sayso.adapters.temporal.worker import SaysoPlugin
from sayso.adapters.temporal.workflow import ask, confirm, run_once

__all__ = ["SaysoPlugin", "ask", "confirm", "run_once"]
