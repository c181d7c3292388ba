"""Helpers for your own tests: a clock, a scripted model, a scripted reviewer, and two test suites.

Subclass ``StoreSuite`` to test a store, and ``AdapterSuite`` to test an adapter::

    from sayso.testing import StoreSuite

    class TestMyStore(StoreSuite):
        def make_store(self, clock, keys):
            return MyStore(clock=clock, keys=keys)

The suites, and ``check_store``, are in the distribution ``sayso-testing``, which
``pip install "sayso[testing]"`` adds. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.testing.clock import FakeClock
    from sayso.testing.reviewer import ScriptedReviewer, person
    from sayso.testing.scripted_model import ScriptedModel, call, calls, refuse, say
    from sayso_testing.adapter_harness import AdapterHarness, HarnessContext, ScriptedCall
    from sayso_testing.adapter_suite import AdapterSuite
    from sayso_testing.checks import check_store
    from sayso_testing.suite import StoreSuite

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
    "sayso.testing.clock": ("FakeClock",),
    "sayso.testing.reviewer": ("ScriptedReviewer", "person"),
    "sayso.testing.scripted_model": ("ScriptedModel", "call", "calls", "refuse", "say"),
    "sayso_testing.adapter_harness": ("AdapterHarness", "HarnessContext", "ScriptedCall"),
    "sayso_testing.adapter_suite": ("AdapterSuite",),
    "sayso_testing.checks": ("check_store",),
    "sayso_testing.coding_agents": ("coding_agents",),
    "sayso_testing.suite": ("StoreSuite",),
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'sayso.testing' has no attribute {name!r}")
    try:
        value = (
            import_module(module) if module.endswith(name) else getattr(import_module(module), name)
        )
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("sayso_testing"):
            raise
        message = f'{name} is in a package that is not installed: pip install "sayso[testing]"'
        raise ImportError(message, name=error.name) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
