"""A person awaited inside a Temporal workflow.

In a workflow: ``await ask(...)``, ``await confirm(...)``, ``await run_once("refund", {...})``. On
the worker: ``SaysoPlugin(gate, tools=[refund])``. The request stands in the store like any other
and is decided like any other; a workflow that waits costs what a sleeping workflow costs.

Where it meets Temporal: short activities ask and look, a signal says that looking is worth it, a
durable timer looks even if no signal comes, and the tool is an activity with one attempt. Workflow
code never touches the store, and a signal carries nothing that is believed.
"""

from __future__ import annotations

try:
    import temporalio.plugin as _found  # noqa: F401
except ImportError as error:
    raise ImportError(
        'Temporal is not installed: pip install "sayso[temporal]"', name=error.name
    ) from error

from sayso.adapters.temporal._inside import ask, confirm, run_once
from sayso.adapters.temporal._plugin import SaysoPlugin

__all__ = ["SaysoPlugin", "ask", "confirm", "run_once"]
