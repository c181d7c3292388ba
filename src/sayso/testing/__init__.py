"""For tests of your own: a clock you set, a reviewer who follows a script, the suite for stores
and the story for adapters.

Each name is imported on first use, so that only ``StoreSuite`` and ``AdapterStory`` need pytest::

    from sayso.testing import StoreSuite

    class TestMyStore(StoreSuite):
        def make_store(self, clock, keys):
            return MyStore(clock=clock, keys=keys)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.testing.checks import check_store
    from sayso.testing.clock import FakeClock
    from sayso.testing.openai_server import FakeOpenAI
    from sayso.testing.reviewer import ScriptedReviewer, person
    from sayso.testing.scripted_model import ScriptedModel, call, calls, refuse, say
    from sayso.testing.store_suite import StoreSuite
    from sayso.testing.story.stage import Called, Cast, Stage
    from sayso.testing.story.suite import AdapterStory

__all__ = [
    "AdapterStory",
    "Called",
    "Cast",
    "FakeClock",
    "FakeOpenAI",
    "ScriptedModel",
    "ScriptedReviewer",
    "Stage",
    "StoreSuite",
    "call",
    "calls",
    "check_store",
    "person",
    "refuse",
    "say",
]

_HOMES = {
    "AdapterStory": "sayso.testing.story.suite",
    "Called": "sayso.testing.story.stage",
    "Cast": "sayso.testing.story.stage",
    "FakeClock": "sayso.testing.clock",
    "FakeOpenAI": "sayso.testing.openai_server",
    "ScriptedModel": "sayso.testing.scripted_model",
    "ScriptedReviewer": "sayso.testing.reviewer",
    "person": "sayso.testing.reviewer",
    "Stage": "sayso.testing.story.stage",
    "StoreSuite": "sayso.testing.store_suite",
    "call": "sayso.testing.scripted_model",
    "calls": "sayso.testing.scripted_model",
    "check_store": "sayso.testing.checks",
    "refuse": "sayso.testing.scripted_model",
    "say": "sayso.testing.scripted_model",
}
# Modules whose bare asserts should explain themselves when a test of somebody else fails.
_ASSERTING = {
    "StoreSuite": (
        "sayso.testing.checks",
        "sayso.testing.suite",
        "sayso.testing.store_suite",
    ),
    "AdapterStory": tuple(
        f"sayso.testing.story.{case}"
        for case in ("deciding", "together", "dying", "changing", "malformed", "scene")
    ),
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
