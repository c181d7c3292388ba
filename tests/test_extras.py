"""``pip install sayso`` has no web stack; commands that need one name the extra."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SUITES = ("StoreSuite", "AdapterSuite", "check_store")
#: What needs each extra: a command, or some Python. Other extras are an adapter or a channel.
NEEDS = {
    "mcp": ["proxy --config mcp.json", "mcp"],
    "oidc": ["import sayso.server.oidc"],
    "openai": ["sayso.Agent('a', model='openai:m', tools=[]).run_sync('hello')"],
    "otel": ["import sayso.agent.tracing", "import sayso.audit.spans"],
    "passkeys": ["import sayso.server.passkeys"],
    "postgres": [
        "inbox --store postgresql://localhost/x",
        "worker shop:agent --store postgresql://localhost/x",
        "sayso.open_store('postgresql://localhost/x')",
    ],
    "server": ["serve", "demo", "worker shop:agent --metrics 0", "sayso.create_app"],
    "temporal": [
        "worker shop:agent --dispatch temporal://localhost",
        "import sayso.adapters.temporal",
    ],
    "testing": [
        *(f"import sayso.testing; sayso.testing.{name}" for name in SUITES),
        *("hook test claude", "hook attack --policy strict --agent claude"),
    ],
}
AGENT = """
import sayso
from sayso.testing import ScriptedModel
agent = sayso.Agent("a", model=ScriptedModel([]), tools=[])
"""


def canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name.lower())


@cache
def hidden(extra: str = "") -> set[str]:
    """The installed modules that ``pip install sayso`` with one extra, or none, does not bring."""
    declared = PROJECT["optional-dependencies"].get(extra, ())
    kept, todo = set(), ["sayso", *(Requirement(one).name for one in declared)]
    while todo:
        name = canonical(todo.pop())
        if name not in kept:
            kept.add(name)
            needed = map(Requirement, metadata.requires(name) or ())
            todo += [n.name for n in needed if not n.marker or n.marker.evaluate({"extra": ""})]
    owners = metadata.packages_distributions().items()
    others = {module for module, names in owners if kept.isdisjoint(map(canonical, names))}
    return others | {"sayso_testing"}  # an editable install of sayso has it


def without_extras(code: str, cwd: Path, *, but: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a process with what ``pip install sayso`` brings, and perhaps one extra."""
    hide = f"import sys\nsys.modules.update(dict.fromkeys({hidden(but)!r}))\nimport sayso\n"
    environment = {name: value for name, value in os.environ.items() if name != "UV"}
    command = [sys.executable, "-c", hide + code]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


def program(command: str) -> str:
    """Return code that runs our command line."""
    return f"sys.argv = {['sayso', *command.split()]!r}\nfrom sayso.cli.entry import main\nmain()"


def uses(extra: str) -> list[str]:
    """What needs an extra. One may be declared before its channel is there."""
    modules = [f"sayso.{folder}.{extra.replace('-', '_')}" for folder in ("adapters", "channels")]
    return NEEDS.get(extra) or [f"import {module}" for module in modules if find_spec(module)]


EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - {"dev"})


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if uses(extra)])
def test_missing_extra_is_named(extra: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(AGENT)
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    for use in uses(extra):
        is_code = use.startswith(("import", "from", "sayso."))
        ran = without_extras(use if is_code else program(use), tmp_path)
        assert ran.returncode != 0, use
        last = ran.stderr.strip().splitlines()[-1].replace('"', "'")
        assert f"pip install 'sayso[{extra}]'" in last, (use, ran.stderr)
        assert is_code or "Traceback" not in ran.stderr, (use, ran.stderr)


#: Options of ``sayso serve``, which has its own extra here, and the extra that each needs.
SERVER_OPTIONS = {
    "--mail-server smtp://ana@localhost": "mail",
    "--oidc provider.toml": "oidc",
    "--push-private": "push",
    "--slack-token-file token": "slack",
    "--store postgresql://localhost/x": "postgres",
    "--telegram-token-file token": "telegram",
}


@pytest.mark.parametrize("option", SERVER_OPTIONS)
def test_server_names_extra_of_option(option: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    ran = without_extras(program(f"serve --port 0 {option}"), tmp_path, but="server")
    assert ran.returncode != 0
    last = ran.stderr.strip().splitlines()[-1].replace('"', "'")
    assert f"pip install 'sayso[{SERVER_OPTIONS[option]}]'" in last, ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr


def test_worker_needs_no_web_server(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(AGENT)
    code = f"""
import os, signal
import sayso.worker
stop = lambda worker: os.kill(os.getpid(), signal.SIGTERM)
sayso.worker.Worker.run = lambda worker, run=sayso.worker.Worker.run: stop(worker) or run(worker)
{program("worker shop:agent --store sqlite:///sayso.db")}"""
    ran = without_extras(code, tmp_path)
    assert ran.stdout.startswith("Resuming runs of a "), ran.stderr


def test_library_and_cli_work_without_server(tmp_path: Path) -> None:
    code = """
import sayso.testing
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
""" + program("history")
    ran = without_extras(code, tmp_path)
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


def test_two_wheels_divide_the_test_suites(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*build, str(ROOT), str(ROOT / "testkit")], check=True, timeout=170)
    version = PROJECT["version"]
    wheel = ZipFile(tmp_path / f"sayso-{version}-py3-none-any.whl")
    kit = ZipFile(tmp_path / f"sayso_testing-{version}-py3-none-any.whl")
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert top == {"sayso", f"sayso-{version}.dist-info"}
    modules = {name for name in wheel.namelist() if name.startswith("sayso/testing/")}
    helpers = ("__init__", "clock", "reviewer", "scripted_model", "selftest")
    assert modules == {f"sayso/testing/{name}.py" for name in helpers}
    info = f"sayso_testing-{version}.dist-info"
    assert {name.split("/")[0] for name in kit.namelist()} == {"sayso_testing", info}
    assert {"sayso_testing/py.typed", f"{info}/licenses/LICENSE"} <= set(kit.namelist())
    # A registry has none of the files that the README links to.
    for file, name in ((wheel, "sayso"), (kit, "sayso_testing")):
        page = file.read(f"{name}-{version}.dist-info/METADATA").decode().split("\n\n", 1)[1]
        assert re.findall(r"\]\((?!https://|#)[^)]*\)", page) == []
    # The suites look inside: each distribution names the other's version.
    assert f"Requires-Dist: sayso=={version}" in kit.read(f"{info}/METADATA").decode()
    assert PROJECT["optional-dependencies"]["testing"] == [f"sayso-testing=={version}"]
