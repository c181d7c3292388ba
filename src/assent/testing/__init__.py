"""For tests of your own: a clock you set, a reviewer who follows a script, the suite for stores
and the story for adapters.

Each name is imported on first use, so that only ``StoreSuite`` and ``AdapterStory`` need pytest::

    from assent.testing import StoreSuite

    class TestMyStore(StoreSuite):
        def make_store(self, clock, keys):
            return MyStore(clock=clock, keys=keys)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assent.testing.checks import check_store
    from assent.testing.clock import FakeClock
    from assent.testing.openai_server import FakeOpenAI
    from assent.testing.reviewer import ScriptedReviewer
    from assent.testing.scripted_model import ScriptedModel, call, calls, refuse, say
    from assent.testing.store_suite import StoreSuite
    from assent.testing.story.stage import Called, Cast, Stage
    from assent.testing.story.suite import AdapterStory

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
    "refuse",
    "say",
]

_HOMES = {
    "AdapterStory": "assent.testing.story.suite",
    "Called": "assent.testing.story.stage",
    "Cast": "assent.testing.story.stage",
    "FakeClock": "assent.testing.clock",
    "FakeOpenAI": "assent.testing.openai_server",
    "ScriptedModel": "assent.testing.scripted_model",
    "ScriptedReviewer": "assent.testing.reviewer",
    "Stage": "assent.testing.story.stage",
    "StoreSuite": "assent.testing.store_suite",
    "call": "assent.testing.scripted_model",
    "calls": "assent.testing.scripted_model",
    "check_store": "assent.testing.checks",
    "refuse": "assent.testing.scripted_model",
    "say": "assent.testing.scripted_model",
}
# Modules whose bare asserts should explain themselves when a test of somebody else fails.
_ASSERTING = {
    "StoreSuite": (
        "assent.testing.checks",
        "assent.testing.suite",
        "assent.testing.store_suite",
    ),
    "AdapterStory": tuple(
        f"assent.testing.story.{case}"
        for case in ("deciding", "together", "dying", "changing", "malformed", "scene")
    ),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'assent.testing' has no attribute {name!r}")
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
