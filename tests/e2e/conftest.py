"""What the tests with many processes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from zygote import Zygote


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    warm = Zygote()
    yield warm
    warm.close()
