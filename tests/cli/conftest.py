from __future__ import annotations

from pathlib import Path

import pytest
from cli_world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.delenv("SAYSO_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    return World(tmp_path)
