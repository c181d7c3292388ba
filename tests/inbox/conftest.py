"""The inbox is tested with the same small world as the gate."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "gate"))

from worlds import case, clock, make_store, timed, url

__all__ = ["case", "clock", "make_store", "timed", "url"]
