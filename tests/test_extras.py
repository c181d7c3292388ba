"""``pip install sayso`` has no web stack; what needs one prints the line to type."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SERVER = ("fastapi", "httptools", "prometheus_client", "standardwebhooks", "starlette", "uvicorn")


def without_server(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process that cannot import the packages of the extra ``server``."""
    hide = f"import sys\nfor name in {SERVER!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", hide + code]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_command_that_needs_the_server_says_what_to_install(command: str, tmp_path: Path) -> None:
    code = f"sys.argv = ['sayso', {command!r}]\nfrom sayso.cli.entry import main\nmain()"
    ran = without_server(code, tmp_path)
    assert ran.returncode == 1
    assert f"sayso {command} needs the web server" in ran.stderr
    assert "pip install 'sayso[server]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_library_and_the_command_line_work_without_the_server(tmp_path: Path) -> None:
    code = """
import sayso, sayso.testing
gate = sayso.Gate("sayso.db", wait=0)
pay = gate.guard(lambda to: f"paid {to}", name="pay")
try:
    with gate.run("r"): pay("ana")
except sayso.Paused as paused:
    sayso.Inbox(gate.store).approve_sync(paused.requests[0], by="ana")
with gate.run("r"): print(pay("ana"))
sayso.Agent, sayso.Worker, sayso.Client, sayso.RemoteGate, sayso.testing.ScriptedModel
try: sayso.create_app
except ImportError as error: print(error)
gate.close()
sys.argv = ["sayso", "history"]
from sayso.cli.entry import main
main()
"""
    ran = without_server(code, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("paid ana\ncreate_app needs the web server")
    assert "Pay: ana" in ran.stdout.split("sayso[server]")[1]


def test_the_pinned_versions_cover_what_is_declared() -> None:
    pinned = {}
    for file in ("demo.txt", "dev.txt"):
        lines = (ROOT / "requirements" / file).read_text("utf-8").splitlines()
        pinned[file] = {line.split("==")[0] for line in lines}
    extras = PROJECT["optional-dependencies"]
    for file, groups in (("demo.txt", ("server",)), ("dev.txt", ("server", "dev"))):
        declared = [*PROJECT["dependencies"], *(one for group in groups for one in extras[group])]
        for one in declared:
            name = one.split(">")[0].split("[")[0].strip()
            assert name == "sayso" or name in pinned[file], f"{name}: run make update"
