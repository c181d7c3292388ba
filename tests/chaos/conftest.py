"""The long versions use what the short ones do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "stories"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
from fault_fixtures import fork_server, patient, server, tell

__all__ = ["fork_server", "patient", "server", "tell"]
