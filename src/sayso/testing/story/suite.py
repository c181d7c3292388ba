"""One story that every adapter must pass, yours too.

Write a stage, and subclass the story in a test file::

    class TestMyFramework(AdapterStory):
        stage = MyStage

Every step is a process of its own, in fact or in effect; effects and model calls are counted in
files. Where a framework cannot do something, override that test with one which shows two things:
that the bare framework cannot either, and that the adapter says so with a clear error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from sayso.testing.story.changing import Changing
from sayso.testing.story.deciding import Deciding
from sayso.testing.story.dying import Dying
from sayso.testing.story.malformed import Malformed
from sayso.testing.story.nursery import Nursery
from sayso.testing.story.scene import Scene
from sayso.testing.story.stage import Stage
from sayso.testing.story.together import Together


class AdapterStory(Deciding, Together, Dying, Changing, Malformed):
    """Every promise of an adapter, as tests."""

    stage: ClassVar[type[Stage]]

    @pytest.fixture(scope="class")
    @classmethod
    def nursery(cls) -> Iterator[Callable[[], Nursery]]:
        """The warm interpreter of this stage, begun when the first test needs it."""
        begun: list[Nursery] = []

        def give() -> Nursery:
            if not begun:
                begun.append(Nursery(f"{cls.stage.__module__}:{cls.stage.__qualname__}"))
            return begun[0]

        yield give
        for warm in begun:
            warm.close()

    @pytest.fixture
    def scene(self, tmp_path: Path, nursery: Callable[[], Nursery]) -> Iterator[Scene]:
        """A fresh play on this stage."""
        scene = Scene(type(self).stage, tmp_path, nursery)
        yield scene
        scene.close()
