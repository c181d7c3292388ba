"""The seed of this run of the fault tests, and how they report."""

from __future__ import annotations

import os
import random
from typing import Any, Protocol

SEED = int(os.environ.get("SAYSO_CHAOS_SEED", "0")) or random.SystemRandom().randrange(10**9)


class Tell(Protocol):
    """Prints one JSON line."""

    def __call__(self, **counts: Any) -> None: ...
