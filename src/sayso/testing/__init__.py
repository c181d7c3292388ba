"""Helpers for your own tests: a clock, a scripted model, a scripted reviewer, and two test suites.

Subclass ``StoreSuite`` to test a store, and ``AdapterSuite`` to test an adapter. Names are imported
on first use, so only the suites need pytest::

    from sayso.testing import StoreSuite

    class TestMyStore(StoreSuite):
        def make_store(self, clock, keys):
            return MyStore(clock=clock, keys=keys)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.testing.adapter_harness import AdapterHarness, HarnessContext, ScriptedCall
    from sayso.testing.adapter_suite import AdapterSuite
    from sayso.testing.checks import check_store
    from sayso.testing.clock import FakeClock
    from sayso.testing.reviewer import ScriptedReviewer, person
    from sayso.testing.scripted_model import ScriptedModel, call, calls, refuse, say
    from sayso.testing.store_suite import StoreSuite

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

_HOMES = {
    "AdapterSuite": "sayso.testing.adapter_suite",
    "ScriptedCall": "sayso.testing.adapter_harness",
    "HarnessContext": "sayso.testing.adapter_harness",
    "FakeClock": "sayso.testing.clock",
    "ScriptedModel": "sayso.testing.scripted_model",
    "ScriptedReviewer": "sayso.testing.reviewer",
    "person": "sayso.testing.reviewer",
    "AdapterHarness": "sayso.testing.adapter_harness",
    "StoreSuite": "sayso.testing.store_suite",
    "call": "sayso.testing.scripted_model",
    "calls": "sayso.testing.scripted_model",
    "check_store": "sayso.testing.checks",
    "refuse": "sayso.testing.scripted_model",
    "say": "sayso.testing.scripted_model",
}
# Modules in which pytest rewrites bare asserts, so that a failure shows the values.
_ASSERTING = {
    "StoreSuite": (
        "sayso.testing.checks",
        "sayso.testing.suite",
        "sayso.testing.store_suite",
    ),
    "AdapterSuite": ("sayso.testing.adapter_suite", "sayso.testing.adapter_steps"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sayso.testing' has no attribute {name!r}")
    if name in _ASSERTING:
        _explain_asserts(_ASSERTING[name])
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def _explain_asserts(modules: tuple[str, ...]) -> None:
    import sys

    import pytest

    fresh = [module for module in modules if module not in sys.modules]
    pytest.register_assert_rewrite(*fresh)


def __dir__() -> list[str]:
    return sorted(__all__)
