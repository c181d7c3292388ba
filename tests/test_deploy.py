"""The files of ``deploy/`` fit the program that they start, each other, and the page about them."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import psycopg
import pytest
import typer
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from postgres_server import shared_url, why_not
from waiting import until

from sayso.cli.main import app
from sayso.cli.serve import PORT
from sayso.keys import new_key
from sayso.server import create_app, serving
from sayso.server.middleware import MAX_BODY_BYTES

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PAGES = ("deployment", "keys", "backup", "monitoring", "upgrading")
PAGE = "\n".join((ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in PAGES)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
#: The versions that the tests run with, also in environments that tests make.
PINNED = str(ROOT / "requirements" / "dev.txt")
UNITS = ("sayso.service", "sayso-worker@.service")

VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
BLOCK = re.compile(r"^```(?:console|text)\n(.*?)^```$", re.M | re.S)
#: What others read: libpq, uvicorn, Python and the image of PostgreSQL.
OTHERS = {"PGPASSWORD", "FORWARDED_ALLOW_IPS", "PATH", "PYTHONUNBUFFERED"}
OTHERS |= {"PYTHONDONTWRITEBYTECODE", "POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}


def parsed(words: list[str]) -> dict[str, Any]:
    """What our own command line makes of these words, without doing it."""
    command: Any = typer.main.get_command(app)
    name = "sayso"
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    return {"command": name, **command.make_context(name, words).params}


def read_by_us() -> set[str]:
    """The variables of the environment that the program reads."""
    sources = (ROOT / "src").rglob("*.py")
    return {name for path in sources for name in re.findall(r'"(SAYSO_\w+)"', path.read_text())}


# -- compose.yaml


def compose(**given: str) -> dict[str, Any]:
    """The file as Compose reads it: merged, with the variables filled in."""

    def fill(found: re.Match[str]) -> str:
        name, sign, rest = found.groups()
        assert name in given or sign == "-", f"{name} has no value: {rest}"
        return given.get(name) or rest

    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.safe_load(VARIABLE.sub(fill, text))
    return loaded


GIVEN = {"SAYSO_KEY": "hmac:k", "POSTGRES_PASSWORD": "p"}


def commands_of_compose(**given: str) -> dict[str, list[str]]:
    services = compose(**GIVEN, **given)["services"]
    return {name: shlex.split(services[name]["command"]) for name in ("server", "worker")}


def test_compose_uses_existing_commands() -> None:
    asked = commands_of_compose()
    server, worker = parsed(asked["server"]), parsed(asked["worker"])
    assert (server["command"], worker["command"]) == ("serve", "worker")
    assert server["workers"] == 0
    assert server["targets"] == worker["targets"] == ["sayso.demo:agent"]
    assert server["host_name"] == ["localhost"]
    several = commands_of_compose(SAYSO_AGENTS="shop:one shop:two", SAYSO_HOST_NAME="a.example")
    assert parsed(several["worker"])["targets"] == ["shop:one", "shop:two"]
    assert parsed(several["server"])["host_name"] == ["a.example"]


def test_compose_variables_are_documented() -> None:
    names = {
        found[1]: found[2] for found in VARIABLE.finditer((DEPLOY / "compose.yaml").read_text())
    }
    assert {name for name, sign in names.items() if sign == "?"} == {*GIVEN}
    assert all(f'echo "{name}=' in PAGE for name in GIVEN)
    assert ".env" in (ROOT / ".gitignore").read_text().split()
    for service in compose(**GIVEN)["services"].values():
        assert set(service["environment"]) <= OTHERS | read_by_us()


def test_compose_uses_one_image_and_port() -> None:
    whole = compose(**GIVEN)
    services = whole["services"]
    assert set(services) == {"db", "server", "worker"}
    assert services["server"]["image"] == services["worker"]["image"]
    builds = [name for name, service in services.items() if "build" in service]
    assert builds == ["server"]  # two builds of one name at once fail
    build = services["server"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert services["server"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert [name for name in services if "ports" in services[name]] == ["server"]
    for name in ("server", "worker"):
        assert services[name]["depends_on"] == {"db": {"condition": "service_healthy"}}
        store = services[name]["environment"]["SAYSO_STORE"]
        user, database = (services["db"]["environment"][f"POSTGRES_{n}"] for n in ("USER", "DB"))
        assert store == f"postgresql://{user}@db/{database}"
    # From 18 on the image keeps its data in a folder of its version, below this one.
    volume, _, target = services["db"]["volumes"][0].partition(":")
    assert (services["db"]["image"], target) == ("postgres:18", "/var/lib/postgresql")
    assert volume in whole["volumes"]


# -- Dockerfile


def dockerfile() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2]) for line in lines]


def test_image_context_has_the_needed_files() -> None:
    copies = [shlex.split(rest) for step, rest in dockerfile() if step == "COPY"]
    sources = {name for words in copies if "--from" not in words[0] for name in words[:-1]}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    assert all((ROOT / name).exists() for name in sources)
    project = PROJECT["project"]
    page = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    needed = {"pyproject.toml", *(one["path"] for one in page["fragments"])}
    needed |= {Path(path).parts[0] for path in project["license-files"]}
    needed |= {
        Path(p).parts[0] for p in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert needed == sources
    assert not any(fnmatch("src/sayso/server/static/index.html", line) for line in ignored[1:])


def test_image_starts_server_without_root() -> None:
    steps = dockerfile()
    last = steps[max(n for n, (step, _) in enumerate(steps) if step == "FROM") :]
    said = {step: rest for step, rest in last}
    assert yaml.safe_load(said["ENTRYPOINT"]) == [*PROJECT["project"]["scripts"]]
    command = parsed(yaml.safe_load(said["CMD"]))
    assert (command["command"], command["host"], command["port"]) == ("serve", "0.0.0.0", PORT)
    assert said["EXPOSE"] == str(PORT)
    assert any(step == "RUN" and said["USER"] in rest.split() for step, rest in last)
    version = re.search(r"python:3\.(\d+)-slim", steps[0][1])
    assert version is not None
    assert f"Programming Language :: Python :: 3.{version[1]}" in PROJECT["project"]["classifiers"]
    variables = {word.partition("=")[0] for word in shlex.split(said["ENV"])}
    assert variables <= OTHERS | read_by_us()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that the image's own steps make: in an empty folder, with nothing else."""
    folder = tmp_path_factory.mktemp("image")
    source = folder / "source"
    source.mkdir()
    steps = dockerfile()
    environment = folder / "environment"
    # `make` installs uv beside this Python where the system has none.
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    for step, rest in steps[: steps.index(("FROM", "python:3.13-slim"))]:
        words = [word.replace("/opt/sayso", str(environment)) for word in shlex.split(rest)]
        if step == "COPY":
            for name in words[:-1]:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, source / name)
        if step == "RUN":
            if uv is not None and words[0].endswith("pip"):  # as pip, but in seconds
                words = [uv, "pip", *words[1:], "--python", str(environment), "--quiet"]
                words.remove("--no-cache-dir")
            elif uv is not None:
                words.append("--without-pip")
            pinned = {"PIP_CONSTRAINT": PINNED, "UV_CONSTRAINT": PINNED}
            subprocess.run(
                [sys.executable if words[0] == "python" else words[0], *words[1:]],
                cwd=source,
                env={**os.environ, **pinned},
                check=True,
            )
    return environment / "bin" / "sayso"


# -- systemd


def unit(name: str) -> dict[str, list[str]]:
    """Its settings, each as often as it is given."""
    settings: dict[str, list[str]] = {}
    for line in (DEPLOY / name).read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


def settings_on_the_page() -> dict[str, str]:
    """The lines for /etc/sayso/env."""
    (text,) = [t for t in BLOCK.findall(PAGE) if t.startswith("SAYSO_STORE=")]
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize("name", UNITS)
def test_units_use_existing_commands(name: str) -> None:
    (line,) = unit(name)["ExecStart"]
    program, *words = line.split()
    assert f"{program.removesuffix('/sayso')}/pip install" in PAGE

    def started(**environment: str) -> dict[str, Any]:
        """As systemd splits it: `$NAME` is as many words as its value has."""
        split = [environment.get(w[1:], "").split() if w[0] == "$" else [w] for w in words]
        return parsed([word for part in split for word in part])

    page = settings_on_the_page()
    assert set(page) - {"SAYSO_STORE"} <= {w[1:] for w in words if w[0] == "$"} | {"SAYSO_OPTIONS"}
    whole = started(**page, SAYSO_WORKER_OPTIONS="--concurrency 4 --metrics 9321")
    assert whole["targets"] == [page["SAYSO_AGENTS"]]
    assert whole["log_json"]
    if name == "sayso.service":
        assert whole["host_name"] == ["approvals.example.com"]
        assert not started()["targets"]  # no agents, but an inbox
    comment = "".join(re.findall(r"^#.*$", (DEPLOY / name).read_text(), re.M))
    assert "/etc/sayso/env" in comment
    assert unit(name)["EnvironmentFile"][0] == "/etc/sayso/env"


def test_proxy_unit_starts_a_proxy_over_http() -> None:
    (line,) = unit("sayso-proxy.service")["ExecStart"]
    started = parsed(line.split()[1:])
    assert (started["command"], started["listen"]) == ("proxy", "127.0.0.1:8901")
    assert not started["no_auth"]
    assert started["config"] == Path("/etc/sayso/mcp.json")
    assert unit("sayso-proxy.service")["EnvironmentFile"] == ["/etc/sayso/env"]


def test_units_and_compose_share_limits() -> None:
    only = {"Description", "EnvironmentFile", "ExecStart"}
    server, *others = [unit(name) for name in (*UNITS, "sayso-proxy.service")]
    for other in others:
        assert {k: v for k, v in server.items() if k not in only} == {
            k: v for k, v in other.items() if k not in only
        }
    assert server["TimeoutStopSec"] == ["120"]
    assert compose(**GIVEN)["services"]["worker"]["stop_grace_period"] == "2m"
    assert server["StateDirectory"] == ["sayso"]
    assert settings_on_the_page()["SAYSO_STORE"] == "sqlite:////var/lib/sayso/sayso.db"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_units(tmp_path: Path) -> None:
    for path in DEPLOY.glob("*.service"):
        text = path.read_text("utf-8").replace("/opt/sayso/bin/sayso", sys.executable)
        (tmp_path / path.name.replace("@", "@1")).write_text(text)
    units = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# -- Kubernetes


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))


def pods() -> dict[str, dict[str, Any]]:
    """The specification of each pod, by the name of its only container."""
    specs = [one["spec"]["template"]["spec"] for one in manifests() if one["kind"] == "Deployment"]
    return {spec["containers"][0]["name"]: spec for spec in specs}


def test_kubernetes_accepts_manifests() -> None:
    for one in manifests():
        assert kubernetes_validate.validate(one, "1.34", strict=True), one["kind"]


def test_kubernetes_uses_existing_commands() -> None:
    server, worker = (
        parsed(pods()[name]["containers"][0]["args"]) for name in ("server", "worker")
    )
    assert (server["command"], worker["command"]) == ("serve", "worker")
    assert (server["workers"], server["host"]) == (0, "0.0.0.0")
    assert server["targets"] == worker["targets"] == ["sayso.demo:agent"]
    (line,) = re.findall(r"server_name (.+);", (DEPLOY / "nginx.conf").read_text())
    assert server["host_name"] == [line]
    (port,) = pods()["worker"]["containers"][0]["ports"]
    assert worker["metrics"] == f"0.0.0.0:{port['containerPort']}"
    assert pods()["server"]["containers"][0]["ports"][0]["containerPort"] == PORT


def test_containers_run_without_root_or_writable_disk() -> None:
    users = re.findall(r"useradd .*--uid (\d+)", (DEPLOY / "Dockerfile").read_text())
    for spec in pods().values():
        (container,) = spec["containers"]
        assert [str(spec["securityContext"]["runAsUser"])] == users
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["terminationGracePeriodSeconds"] == 120
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    for name in ("server", "worker"):
        service = compose(**GIVEN)["services"][name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


# -- nginx


def nginx() -> dict[str, list[str]]:
    text = re.sub(r"#.*", "", (DEPLOY / "nginx.conf").read_text("utf-8"))
    assert text.count("{") == text.count("}")
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"([a-z_0-9]+)\s+([^;{}]+);", text):
        found.setdefault(name, []).append(value)
    return found


def test_nginx_limits_match_the_server() -> None:
    said = nginx()
    assert said["server"] == [f"127.0.0.1:{PORT} max_fails=0"]
    assert said["client_max_body_size"] == [f"{MAX_BODY_BYTES // 1024**2}m"]
    api: Any = create_app(auth=False, store="memory://").openapi()
    _, wait = api["paths"]["/api/requests/{request_id}/wait"]["get"]["parameters"]
    (patience,) = said["proxy_read_timeout"]
    assert int(patience.removesuffix("s")) > wait["schema"]["maximum"]
    assert said["proxy_buffering"] == ["off"]
    headers = dict(line.split(maxsplit=1) for line in said["proxy_set_header"])
    assert {"Host", "X-Forwarded-For", "X-Forwarded-Proto", "Connection"} == set(headers)
    assert headers["Host"] == "$http_host"
    assert said["deny"] == ["all"]
    assert f"SAYSO_OPTIONS=--host-name {said['server_name'][0]}" in PAGE


def test_nginx_closes_idle_connections_first() -> None:
    """Else a decision may be sent into one that the server is just closing: a 502."""
    kept = nginx().get("keepalive_timeout", ["60s"])[0]
    assert int(kept.removesuffix("s")) < serving.KEEP_ALIVE


@pytest.mark.long
def test_nginx_serves_the_inbox_over_tls(tmp_path: Path) -> None:
    """A real nginx, with this file: only its address, certificate and upstream are the test's."""
    program = runpy.run_path(str(ROOT / "scripts" / "programs.py"))["nginx"]()
    if program is None:
        pytest.skip("needs nginx")
    (name,) = nginx()["server_name"]
    front, back = free_port(), free_port()
    certify(name, tmp_path)
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    for ours, theirs in (
        ("listen 443 ", f"listen 127.0.0.1:{front} "),
        (f"127.0.0.1:{PORT}", f"127.0.0.1:{back}"),
        (f"/etc/ssl/{name}.pem", f"{tmp_path}/certificate.pem"),
        (f"/etc/ssl/private/{name}.key", f"{tmp_path}/key.pem"),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;"
        f"events {{}} http {{ access_log off; {paths} {text} }}"
    )
    store = ["--store", f"sqlite:///{tmp_path}/sayso.db"]
    sayso = [sys.executable, "-m", "sayso"]
    token = subprocess.check_output(
        [*sayso, "token", "create", "ana", "--role", "admin", *store], text=True
    ).strip()
    commands = [
        [program, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        [*sayso, "serve", "--port", str(back), "--host-name", name, *store],
    ]
    address = f"https://127.0.0.1:{front}"
    trusted = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    with contextlib.ExitStack() as stack:
        for command in commands:
            process = stack.enter_context(subprocess.Popen(command, cwd=tmp_path))
            stack.callback(process.terminate)
        client = stack.enter_context(
            httpx.Client(verify=trusted, headers={"Host": name}, base_url=address)
        )
        sni = {"sni_hostname": name}

        def get(path: str, **headers: str) -> httpx.Response:
            return client.get(path, headers=headers, extensions=sni)

        until(lambda: is_up(lambda: get("/healthz").status_code == 200))
        assert "<title>" in get("/").text
        assert get("/metrics").status_code == 403
        assert get("/api/requests").status_code == 401
        assert get("/api/requests", Authorization=f"Bearer {token}").status_code == 200
        assert get("/", Host="evil.example.com").status_code == 421
        signed_in = client.post(
            "/api/login",
            json={"token": token},
            headers={"Origin": f"https://{name}"},
            extensions=sni,
        )
        assert signed_in.is_success
        assert "Secure" in signed_in.headers["set-cookie"]


def is_up(answers: Callable[[], bool]) -> bool:
    try:
        return answers()
    except httpx.HTTPError:
        return False


def certify(name: str, folder: Path) -> None:
    """Write a certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


# -- the page


@pytest.mark.long
def test_documented_commands_and_files_exist() -> None:
    lines = [line for text in BLOCK.findall(PAGE) for line in text.splitlines()]
    typed = [line.split("#")[0].removeprefix("$ ") for line in lines if line.startswith("$ ")]
    ours = [
        words[words.index("sayso") + 1 :] for line in typed if "sayso" in (words := line.split())
    ]
    known = [words for words in ours if words and not words[0].startswith(("your", "-", "sayso-"))]
    assert len(known) > 8
    for words in known:
        parsed([word for word in words if word != "your-package"])
    names = {path.name for path in DEPLOY.iterdir()} - {"Dockerfile.dockerignore"}
    assert {name for name in names if f"](../deploy/{name})" not in PAGE} == set()


# -- what compose.yaml says, carried out


@pytest.fixture
def database() -> Iterator[str]:
    if why_not():
        pytest.skip(why_not())
    url, name = shared_url(), f"deploy_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def read_only() -> list[str]:
    """The words before a command that make every disk read-only for it, where that is possible."""
    script = 'mount -o remount,bind,ro / && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh"]
    try:
        possible = subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    except OSError:
        return []
    return [] if possible else words


def compose_services() -> tuple[dict[str, list[str]], dict[str, str], list[str]]:
    """The command of each service, their environment, and how Compose checks the server."""
    services = compose(**{**GIVEN, "SAYSO_KEY": new_key()})["services"]
    words = {name: shlex.split(services[name]["command"]) for name in ("server", "worker")}
    program, *rest = services["server"]["healthcheck"]["test"][1:]
    assert program == "python"
    return words, services["server"]["environment"], rest


def kubernetes_services() -> tuple[dict[str, list[str]], dict[str, str], list[str]]:
    """The same of the manifests. Two workers on one machine need different ports for metrics."""
    containers = {name: spec["containers"][0] for name, spec in pods().items()}
    words = {name: container["args"] for name, container in containers.items()}
    words["worker"] = [word.replace("0.0.0.0:9321", "127.0.0.1:0") for word in words["worker"]]
    environment = {one["name"]: one["value"] for one in containers["server"]["env"]}
    probe = containers["server"]["readinessProbe"]["httpGet"]
    headers = {one["name"]: one["value"] for one in probe["httpHeaders"]}
    address = f"http://127.0.0.1:{PORT}{probe['path']}"
    code = f"import urllib.request as u; u.urlopen(u.Request({address!r}, headers={headers}))"
    return words, {**environment, "SAYSO_KEY": new_key()}, ["-c", code]


@pytest.mark.long
@pytest.mark.parametrize("services", [compose_services, kubernetes_services])
def test_services_start_on_empty_database(
    services: Callable[[], tuple[dict[str, list[str]], dict[str, str], list[str]]],
    database: str,
    image: Path,
    tmp_path: Path,
) -> None:
    """The server, two workers and the health check, with their own words and environment, in what
    the Dockerfile installs and nothing else, without a disk to write to."""
    words, environment, rest = services()
    environment = {**os.environ, **environment, "SAYSO_STORE": database, "HOME": "/nonexistent"}
    port, log = free_port(), tmp_path / "log"
    words["server"] += ["--port", str(port)]
    check = [str(image.with_name("python")), *(w.replace(f":{PORT}/", f":{port}/") for w in rest)]
    assert f":{port}/" in " ".join(check)
    sayso = [*read_only(), str(image)]
    host = dict(zip(["Host"], parsed(words["server"])["host_name"], strict=True))
    with log.open("wb") as said:
        options: Any = {"env": environment, "cwd": "/", "stderr": said}
        running = [
            subprocess.Popen([*sayso, *words[name]], stdout=said, **options)
            for name in ("server", "worker", "worker")
        ]
        try:
            until(
                lambda: (
                    any(process.poll() is not None for process in running)
                    or subprocess.run(check, stderr=said, check=False).returncode == 0
                ),
                otherwise=log.read_text,
            )
            assert [process.poll() for process in running] == [None] * 3, log.read_text()
            (line,) = re.findall(r"exec server sayso (token create .*)", PAGE)
            token = subprocess.check_output([*sayso, *line.split()], text=True, **options).strip()
            headers = {**host, "Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
                parts = [{"type": "text", "text": "Weather in Oslo"}]
                chat = {"id": "c", "messages": [{"id": "m", "role": "user", "parts": parts}]}
                assert client.post("/api/chat", json=chat).status_code == 200
                (asked,) = client.get("/api/requests").json()["items"]
                yes = {"type": "approve", "seen_digest": asked["digest"]}
                assert client.post(f"/api/requests/{asked['id']}/decision", json=yes).is_success
                run = f"/api/runs/{asked['run']}"
                until(lambda: client.get(run).json()["status"] == "done", otherwise=log.read_text)
            for process in running:
                process.send_signal(signal.SIGTERM)
            assert [process.wait(60) for process in running] == [0, 0, 0]
        finally:
            for process in running:
                process.kill()
                process.wait()
