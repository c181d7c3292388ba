"""What a newcomer does first: README's program, and the commands below it, as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from sayso_process import Terminal, run

ROOT = Path(__file__).resolve().parent.parent.parent
SECTION = (ROOT / "README.md").read_text("utf-8").split("## Any code, and a forged row")[1]
PROGRAM, FORGERY = re.findall(r"```python\n(.*?)```", SECTION, re.S)[:2]
COMMANDS = re.findall(r"^\$ sayso (.+?) +#", SECTION.split("## Install")[0], re.M)
PAID = "Refunded 120 euros for order A-17\n"


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of somebody who has set nothing up."""
    for name in [name for name in os.environ if name.startswith("SAYSO") or name == "CI"]:
        monkeypatch.delenv(name)
    (tmp_path / "app.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program() -> str:
    """Run the file once more, and return what it prints."""
    command = [sys.executable, "app.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_readme_program_is_approved_and_runs_once(newcomer: Path) -> None:
    assert "waits for a decision" in program()
    listing, showing, approving = (command.split() for command in COMMANDS)
    listed = run(*listing, cwd=newcomer, env=os.environ)
    (prefix,) = re.findall(r"req_[0-9a-f]{6}", listed.stdout)
    assert "Refund: A-17, 120" in listed.stdout
    shown = run(*showing[:-1], prefix, cwd=newcomer, env=os.environ)
    assert "order: A-17" in shown.stdout
    person = Terminal(*approving[:-1], prefix, cwd=newcomer, env={**os.environ, "TERM": "xterm"})
    person.expect("uit > ")
    person.send("a\r")
    person.expect(pexpect.EOF)
    person.close()
    assert person.exitstatus == 0
    assert program() == PAID
    assert program() == PAID
    (newcomer / "app.py").write_text(PROGRAM + FORGERY)
    said = program()
    assert said.startswith(PAID)
    assert "it was changed by something that does not hold the row key" in said
