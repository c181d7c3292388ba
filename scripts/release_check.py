"""Build the release, and use it as a stranger would: from its files, in new environments.

    python scripts/release_check.py                           # everything; about 20 minutes
    python scripts/release_check.py --extra server --extra ""  # some extras; "" is none
    python scripts/release_check.py --python python3.13       # some Pythons

Builds the wheels and source distributions of ``sayso`` and ``sayso-testing`` into ``dist/`` and
checks what is in them. Then installs the wheel with each extra alone, into a virtual environment
for each Python of this machine, with the newest versions and with the lowest that
``pyproject.toml`` allows, and uses it there. Starts ``uvx sayso demo`` from the wheel, and writes
the bill of materials. Needs uv.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from programs import uv

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION: str = PROJECT["version"]
EXTRAS = [name for name in PROJECT["optional-dependencies"] if name != "dev"]
RESOLUTIONS = ("highest", "lowest-direct")
#: What an extra is for, where no adapter or channel has its name.
MODULES = {
    "mcp": "sayso.mcp",
    "openai": "sayso.agent.models.openai_client",
    "otel": "sayso.agent.tracing",
    "postgres": "sayso.stores.postgres",
    "server": "sayso.server.app",
    "testing": "sayso_testing",
}
#: A page of the web app, and what else the package needs besides Python.
NEEDED = (
    "sayso/py.typed",
    "sayso/server/static/index.html",
    "sayso/server/static/assets/app.js",
    "sayso/server/static/service-worker.js",
    "sayso/stores/sqlite/schema.sql",
    "sayso/stores/postgres/schema.sql",
)

#: Ask, approve, run once, and read it back, without any extra.
SMOKE = """
import sys, importlib, importlib.util, importlib.metadata as metadata
import sayso
extra, version, *packages = sys.argv[1:]
assert sayso.__version__ == metadata.version("sayso") == version
assert "site-packages" in sayso.__file__
gate = sayso.Gate("sayso.db", wait=0)
paid = []
pay = gate.guard(lambda to: paid.append(to) or f"paid {to}", name="pay")
try:
    with gate.run("r"): pay("ana")
except sayso.Paused as paused:
    sayso.Inbox(gate.store).approve_sync(paused.requests[0], by="ana")
for _ in range(2):
    with gate.run("r"): assert pay("ana") == "paid ana"
assert paid == ["ana"]
gate.close()
for package in packages: metadata.version(package)
named = extra.replace("-", "_")
modules = [f"sayso.adapters.{named}", f"sayso.channels.{named}", f"sayso.server.{named}"]
modules = [module for module in modules if importlib.util.find_spec(module)]
known = KNOWN.get(extra)
if known: modules.append(known)
assert modules or not extra, f"scripts/release_check.py does not know what {extra} is for"
if extra not in ("oidc", "passkeys"):  # for a server
    for module in modules: importlib.import_module(module)
""".replace("KNOWN", repr(MODULES))


class Environment(NamedTuple):
    """A Python, an extra (or none), and which versions to install."""

    python: str
    extra: str
    resolution: str


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return its output. Raise ``SystemExit`` with all of it if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}")
    return done.stdout


def pythons() -> list[str]:
    """Return the newest Python of each supported version on this machine."""
    supported = [line.split(" :: ")[-1] for line in PROJECT["classifiers"] if ":: 3." in line]
    paths = [shutil.which(f"python{version}") for version in supported]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in supported:
        paths += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    newest: dict[str, str] = {}
    for path in filter(None, paths):
        code = "import sys; print(*sys.version_info[:2], sep='.')"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:  # a version manager puts names on the path that lead nowhere
            newest[done.stdout.strip()] = path
    return [newest[version] for version in supported if version in newest]


# --- the files ---


def build(folder: Path) -> Path:
    """Build both distributions, each wheel from its source distribution. Return our wheel."""
    for project in (ROOT, ROOT / "testkit"):
        run(uv(), "build", "--quiet", "--out-dir", folder, project)
    return folder / f"sayso-{VERSION}-py3-none-any.whl"


def check_files(folder: Path) -> None:
    """Check what is in the wheels and source distributions, and how a registry shows them."""
    inside = {path.name: names_in(path) for path in folder.glob("*.*") if path.name[0] != "."}
    wheel = inside[f"sayso-{VERSION}-py3-none-any.whl"]
    assert set(NEEDED) <= wheel, set(NEEDED) - wheel
    assert not [name for name in wheel if name.startswith(("tests/", "sayso_testing/"))]
    source = inside[f"sayso-{VERSION}.tar.gz"]
    assert {f"sayso-{VERSION}/src/{name}" for name in NEEDED} <= source
    assert not [name for name in source if "/tests/" in name or "/ui/" in name], "tests in sdist"
    licenses = {name.split("/licenses/")[1] for name in wheel if "/licenses/" in name}
    assert {Path(path).name for path in licenses} == {"LICENSE", "THIRD_PARTY_LICENSES"}
    for name, names in inside.items():
        assert not [path for path in names if path.endswith((".pyc", ".db", ".key", ".env"))], name
    run(uv(), "tool", "run", "twine", "check", "--strict", *sorted(folder.glob("sayso*")))


def names_in(path: Path) -> set[str]:
    """Return the names of the files in a distribution."""
    if path.suffix == ".whl":
        return set(ZipFile(path).namelist())
    with tarfile.open(path) as archive:
        return set(archive.getnames())


def write_bill(path: Path) -> None:
    """Write the bill of materials, and check it against the schema of CycloneDX."""
    run(sys.executable, ROOT / "scripts" / "bill_of_materials.py", path)
    validate = (
        "import sys; from cyclonedx.schema import SchemaVersion as V;"
        "from cyclonedx.validation.json import JsonStrictValidator as J;"
        "wrong = J(V.V1_6).validate_str(open(sys.argv[1]).read()); sys.exit(wrong and str(wrong))"
    )
    tool = [uv(), "tool", "run", "--from", "cyclonedx-python-lib[json-validation]"]
    run(*tool, "python", "-c", validate, path)


# --- in new environments ---


def use(environment: Environment, wheel: Path) -> str:
    """Install the wheel into a new environment, use it there, and return a line about it."""
    extra = environment.extra
    with tempfile.TemporaryDirectory(prefix="sayso-release-") as name:
        folder = Path(name)
        python = folder / "venv" / "bin" / "python"
        run(uv(), "venv", "--quiet", "--python", environment.python, folder / "venv")
        install = [uv(), "pip", "install", "--quiet", "--python", str(python)]
        install += ["--find-links", str(wheel.parent)]
        if environment.resolution == "highest":
            run(*install, f"sayso[{extra}] @ {wheel.as_uri()}" if extra else str(wheel))
        else:  # the wheel's requirements would not count as direct ones
            wanted = ["-r", str(ROOT / "pyproject.toml"), *(["--extra", extra] if extra else [])]
            run(*install, "--resolution", environment.resolution, *wanted)
            run(*install, "--no-deps", wheel)
        packages = [named(line) for line in PROJECT["optional-dependencies"].get(extra, ())]
        run(python, "-I", "-c", SMOKE, extra, VERSION, *packages, cwd=folder)
        program = python.with_name("sayso")
        assert run(program, "--version", cwd=folder) == f"sayso {VERSION}\n"
        assert "Pay: ana" in run(program, "history", cwd=folder)
        if extra == "server":
            with demo(str(program), cwd=folder) as page:
                assert "<title>" in page
        version = run(python, "-c", "import platform; print(platform.python_version())").strip()
        versions = run(uv(), "pip", "freeze", "--quiet", "--python", python)
        main = [
            re.sub("==", " ", line) for line in versions.splitlines() if named(line) in packages
        ]
    return f"{version:8} {environment.resolution:14} {extra or '-':16} {', '.join(main)}"


def named(requirement: str) -> str:
    """Return the name of the package in a requirement."""
    return re.split(r"[\s\[=<>;@]", requirement)[0]


@contextmanager
def demo(*command: str, cwd: Path) -> Iterator[str]:
    """Start the demo with this command, and yield its first page."""
    started = [*command, "demo", "--no-open", "--no-auth", "--port", "0"]
    with subprocess.Popen(
        started, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                address = re.search(r"http://127\.0\.0\.1:\d+", line)
                if address:
                    break
            else:
                raise SystemExit(f"{' '.join(started)}\n{''.join(lines)}")
            with urllib.request.urlopen(address[0], timeout=30) as answer:
                yield answer.read().decode()
        finally:
            process.send_signal(signal.SIGINT)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--python", action="append", help="a Python, instead of each on this machine"
    )
    parser.add_argument("--extra", action="append", choices=["", *EXTRAS], help="an extra")
    parser.add_argument("--resolution", action="append", choices=RESOLUTIONS)
    given = parser.parse_args()
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    wheel = build(folder)
    check_files(folder)
    write_bill(folder / f"sayso-{VERSION}.cdx.json")
    print(f"built and checked {', '.join(sorted(path.name for path in folder.glob('sayso*')))}")
    with demo(uv(), "tool", "run", "--from", str(wheel), "sayso", cwd=folder) as page:
        assert "<title>" in page
    print(f"uvx --from {wheel.relative_to(ROOT)} sayso demo: works", flush=True)
    environments = itertools.starmap(
        Environment,
        itertools.product(
            given.python or pythons(), given.extra or ["", *EXTRAS], given.resolution or RESOLUTIONS
        ),
    )
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        jobs = [(one, pool.submit(use, one, wheel)) for one in environments]
        for environment, job in jobs:
            error = job.exception()
            failed += error is not None
            print(job.result() if error is None else f"FAILED {environment}\n{error}", flush=True)
    print(f"{len(jobs) - failed} of {len(jobs)} environments work")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
