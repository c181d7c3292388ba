"""Helpers for your own tests: a clock, a scripted model, a scripted reviewer, and two test suites.

Subclass ``StoreSuite`` to test a store, and ``AdapterSuite`` to test an adapter. Names are imported
on first use, so only the suites need pytest::

    from sayso.testing import StoreSuite

    class TestMyStore(StoreSuite):
        def make_store(self, clock, keys):
            return MyStore(clock=clock, keys=keys)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.testing.adapter_harness import AdapterHarness, HarnessContext, ScriptedCall
    from sayso.testing.adapter_suite import AdapterSuite
    from sayso.testing.checks import check_store
    from sayso.testing.clock import FakeClock
    from sayso.testing.reviewer import ScriptedReviewer, person
    from sayso.testing.scripted_model import ScriptedModel, call, calls, refuse, say
    from sayso.testing.suite import StoreSuite

__all__ = [
    "AdapterHarness",
    "AdapterSuite",
    "FakeClock",
    "HarnessContext",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReviewer",
    "StoreSuite",
    "call",
    "calls",
    "check_store",
    "person",
    "refuse",
    "say",
]

_MODULES = {
    "adapter_harness": ("AdapterHarness", "HarnessContext", "ScriptedCall"),
    "adapter_suite": ("AdapterSuite",),
    "checks": ("check_store",),
    "clock": ("FakeClock",),
    "reviewer": ("ScriptedReviewer", "person"),
    "scripted_model": ("ScriptedModel", "call", "calls", "refuse", "say"),
    "suite": ("StoreSuite",),
}
# Modules in which pytest rewrites bare asserts, so that a failure shows the values.
_REWRITTEN = {
    "StoreSuite": ("checks", "world", "suite"),
    "AdapterSuite": ("adapter_suite", "adapter_steps", "adapter_escapes"),
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'sayso.testing' has no attribute {name!r}")
    if name in _REWRITTEN:
        import pytest

        modules = [f"{__name__}.{module}" for module in _REWRITTEN[name]]
        pytest.register_assert_rewrite(*(name for name in modules if name not in sys.modules))
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
