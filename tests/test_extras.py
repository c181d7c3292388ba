"""``pip install sayso`` has no web stack; commands that need one name the extra."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

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
def test_missing_server_names_the_extra(command: str, tmp_path: Path) -> None:
    code = f"sys.argv = ['sayso', {command!r}]\nfrom sayso.cli.entry import main\nmain()"
    ran = without_server(code, tmp_path)
    assert ran.returncode == 1
    assert f"sayso {command} needs the web server" in ran.stderr
    assert "pip install 'sayso[server]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_library_and_cli_work_without_server(tmp_path: Path) -> None:
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


def test_pinned_versions_cover_declared_ranges() -> None:
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


def test_missing_test_kit_names_its_install_line(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["sayso_testing"] = None
import sayso.testing
sayso.testing.ScriptedModel, sayso.testing.FakeClock, sayso.testing.ScriptedReviewer
for name in ("StoreSuite", "AdapterSuite", "check_store"):
    try: getattr(sayso.testing, name)
    except ImportError as error: print(error)
"""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.endswith('pip install "sayso[testing]"') for line in lines)


def test_two_wheels_divide_the_test_suites(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*build, str(ROOT), str(ROOT / "testkit")], check=True, timeout=170)
    version = PROJECT["version"]
    wheel = ZipFile(tmp_path / f"sayso-{version}-py3-none-any.whl")
    kit = ZipFile(tmp_path / f"sayso_testing-{version}-py3-none-any.whl")
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert top == {"sayso", f"sayso-{version}.dist-info"}
    modules = {name for name in wheel.namelist() if name.startswith("sayso/testing/")}
    helpers = ("__init__", "clock", "reviewer", "scripted_model")
    assert modules == {f"sayso/testing/{name}.py" for name in helpers}
    info = f"sayso_testing-{version}.dist-info"
    assert {name.split("/")[0] for name in kit.namelist()} == {"sayso_testing", info}
    assert {"sayso_testing/py.typed", f"{info}/licenses/LICENSE"} <= set(kit.namelist())
    # The suites look inside: each distribution names the other's version.
    assert f"Requires-Dist: sayso=={version}" in kit.read(f"{info}/METADATA").decode()
    assert PROJECT["optional-dependencies"]["testing"] == [f"sayso-testing=={version}"]
