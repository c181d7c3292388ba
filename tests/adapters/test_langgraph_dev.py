"""A real ``langgraph dev``, with its check for blocking calls on.

Its packages do not get along with those of the other tests, so it has an environment of its own,
which is made once per set of pinned versions (``requirements/langgraph.txt``).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import httpx
import pytest

import sayso

ROOT = Path(__file__).parents[2]
PINNED = ROOT / "requirements" / "langgraph.txt"
GO = {"messages": [{"role": "user", "content": "go"}]}

pytestmark = [pytest.mark.long, pytest.mark.timeout(480)]  # the first time, packages are installed


def environment() -> Path:
    """Return the environment of the server. The first time, install it."""
    digest = hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]
    folder = ROOT / "build" / f"langgraph-{digest}-{sys.version_info.minor}"
    if (folder / ".ready").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    # `make` installs uv beside this Python where the system has none.
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("LangGraph's server needs an environment of its own: pip install uv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [uv, "pip", "install", "--python", str(folder / "bin" / "python")]
    ran = subprocess.run(
        [*pip, "--quiet", "--no-deps", "-r", str(PINNED)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    if ran.returncode:
        pytest.skip(f"LangGraph's server cannot be had here: {ran.stderr[-300:]}")
    (folder / ".ready").touch()
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    """The server, and the folder with its store."""
    python = environment() / "bin" / "python"
    folder = tmp_path_factory.mktemp("langgraph")
    shutil.copy(Path(__file__).with_name("langgraph_app.py"), folder / "app.py")
    graphs = {name: f"./app.py:{name}" for name in ("guarded", "drop_in", "made")}
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    # The server imports Sayso from here; its metadata says which versions the extras take.
    installed = Path(str(distribution("sayso").locate_file("")))
    (info,) = installed.glob("sayso-*.dist-info")
    shutil.copytree(info, folder / "metadata" / info.name)
    path = os.pathsep.join([str(ROOT / "src"), str(folder / "metadata")])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [*map(str, command), "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path, "LANGSMITH_TRACING": "false"},
        )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    try:
        _wait_for(client, running, folder)
        yield client, folder
    finally:
        client.close()
        running.terminate()
        running.wait(30)


def _wait_for(client: httpx.Client, running: subprocess.Popen[bytes], folder: Path) -> None:
    ends = time.monotonic() + 90
    while time.monotonic() < ends and running.poll() is None:
        try:
            if client.get("/ok").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start: {(folder / 'log').read_text()[-3000:]}")


class Thread:
    """One thread on the server."""

    def __init__(self, client: httpx.Client, graph: str) -> None:
        self.client = client
        self.graph = graph
        self.id = client.post("/threads", json={}).json()["thread_id"]

    def run(self, **given: Any) -> Any:
        path = f"/threads/{self.id}/runs/wait"
        said = self.client.post(path, json={"assistant_id": self.graph, **given}).json()
        assert "__error__" not in said, said
        return said

    def last(self, **given: Any) -> str:
        return str(self.run(**given)["messages"][-1]["content"])


@pytest.mark.parametrize("graph", ["guarded", "drop_in", "made"])
@pytest.mark.parametrize("through", ["inbox", "server"])
def test_pause_decide_and_continue(
    server: tuple[httpx.Client, Path], graph: str, through: str
) -> None:
    client, folder = server
    sent = folder / "sent"
    sent.unlink(missing_ok=True)
    thread = Thread(client, graph)
    (asked,) = thread.run(input=GO)["__interrupt__"]
    assert not sent.exists()
    value = asked["value"]
    id = value["request_ids"][0] if graph == "drop_in" else value["request_id"]
    if through == "inbox":
        with sayso.Inbox(folder / "sayso.db") as inbox:
            inbox.edit_sync(id, {"to": "bob"}, by="ana", seen_digest=inbox.get_sync(id).digest)
        assert thread.last(input=None) == "Done."
    else:
        made = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "bob"}}}
        answer: Any = {"decisions": [made]} if graph == "drop_in" else made
        assert thread.last(command={"resume": answer}) == "Done."
    assert sent.read_text() == "bob\n"
    with sayso.Inbox(folder / "sayso.db") as inbox:
        request = inbox.get_sync(id)
    assert (request.status, request.execution.status) == ("edited", "done")
    assert request.thread == thread.id


def test_wrong_answer_leaves_thread_usable(server: tuple[httpx.Client, Path]) -> None:
    client, folder = server
    (folder / "sent").unlink(missing_ok=True)
    thread = Thread(client, "guarded")
    thread.run(input=GO)
    (asked,) = thread.run(command={"resume": {"type": "yes"}})["__interrupt__"]
    assert asked["value"]["error"]
    assert thread.last(command={"resume": {"type": "reject", "message": "no"}}) == "Done."
    assert not (folder / "sent").exists()


def test_nothing_blocked_the_event_loop(server: tuple[httpx.Client, Path]) -> None:
    """Runs last: the server's own check was on, and found nothing."""
    log = (server[1] / "log").read_text()
    assert "BlockingError" not in log
