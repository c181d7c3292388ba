"""``sayso serve`` and ``sayso worker`` as processes: start, stop, kill, start again."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pexpect
import pytest
from sayso_process import Process, Terminal, run, start
from waiting import until

from sayso import Inbox
from sayso.demo import Effects
from sayso.keys import new_key, public_key

AGENT = """
import asyncio, os, time
import sayso
from sayso.demo import agent as demo
from sayso.testing import ScriptedModel, call, say

agent = demo

def elsewhere():
    return sayso.Agent("elsewhere", model=ScriptedModel([]), store="sqlite:///elsewhere.db")

def adapted():
    class Adapted:
        name, gate = "adapted", sayso.Gate("sqlite:///elsewhere.db")
        async def run(self, input, *, thread=None, requester=""): ...
        async def resume(self, where): ...
    return Adapted()

def patient():
    @sayso.tool(needs_approval=True)
    async def work(n: int) -> str:
        open(os.environ["BEGAN"], "a").write("began\\n")
        await asyncio.sleep(60)
        return "worked"
    return sayso.Agent("slow", model=ScriptedModel([say("Done.")]), tools=[work])

def blocked():
    @sayso.tool(needs_approval=True)
    def work(n: int) -> str:
        open(os.environ["BEGAN"], "a").write("began\\n")
        time.sleep(60)
        return "worked"
    return sayso.Agent("slow", model=ScriptedModel([say("Done.")]), tools=[work])

def slow():
    @sayso.tool(needs_approval=True)
    def work(n: int) -> str:
        open(os.environ["BEGAN"], "a").write("began\\n")
        time.sleep(2)
        open(os.environ["BEGAN"], "a").write("ended\\n")
        return "worked"
    return sayso.Agent("slow", model=ScriptedModel([say("Done.")]), tools=[work])

def asking(store=None):
    @sayso.tool(needs_approval=True)
    def work(n: int) -> str:
        return "worked"
    model = ScriptedModel([call("work", {"n": 1})])
    return sayso.Agent("slow", model=model, tools=[work], store=store)
"""


class Place:
    """A folder with a store, and processes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'sayso.db'}"
        (folder / "agents.py").write_text(AGENT)
        self.env = {**os.environ, "SAYSO_STORE": self.url, "BEGAN": str(folder / "began")}
        self.processes: list[Process] = []

    def start(self, *command: str, until: str) -> tuple[Process, str]:
        """Start a command, and wait for a line that says it is ready."""
        with (self.folder / f"log-{len(self.processes)}").open("w") as log:
            process = start(*command, cwd=self.folder, env=self.env, stderr=log)
        self.processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert until in line, self.log(-1)
        return process, line

    def serve(self, *options: str) -> tuple[Process, httpx.Client]:
        options = ("serve", *options, "--port", "0", "--no-auth")
        process, line = self.start(*options, until="Sayso is at")
        (address,) = re.findall(r"http://[\d.:]+", line)
        return process, httpx.Client(base_url=address, timeout=60, verify=False)

    def log(self, n: int) -> str:
        return (self.folder / f"log-{n % len(self.processes)}").read_text()

    def ask(self) -> str:
        """Let an agent pause. Return its run."""
        agent = runpy.run_path(str(self.folder / "agents.py"))["asking"](self.url)
        run: str = agent.run_sync("go", thread="t").run
        agent.gate.close()
        return run


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


def approve_all(client: httpx.Client) -> None:
    for item in client.get("/api/requests").json()["items"]:
        body = {"type": "approve", "seen_digest": item["digest"]}
        assert client.post(f"/api/requests/{item['id']}/decision", json=body).status_code == 200


def say(client: httpx.Client, words: str) -> None:
    parts = [{"type": "text", "text": words}]
    body = {"id": "c1", "messages": [{"id": "m", "role": "user", "parts": parts}]}
    assert client.post("/api/chat", json=body).status_code == 200


@pytest.mark.long
def test_killed_server_continues_where_it_was(place: Place) -> None:
    server, client = place.serve("agents:agent")
    say(client, "Weather in Oslo")
    server.kill()
    server.wait()
    client.close()
    server, client = place.serve("agents:agent")
    approve_all(client)
    done = until(lambda: [r for r in _runs(client) if r["status"] == "done"])
    assert done[0]["output"].startswith("Final answer:")
    assert [row["tool"] for row in Effects.beside(place.url).all()] == ["getWeatherInformation"]
    client.close()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def _runs(client: httpx.Client) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/api/runs").json()["items"]
    return items


@pytest.mark.long
def test_stop_waits_for_running_call(place: Place) -> None:
    run = place.ask()
    server, client = place.serve("agents:slow")
    approve_all(client)
    began = place.folder / "began"
    until(began.exists)
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    client.close()
    assert began.read_text().split() == ["began", "ended"]
    server, client = place.serve("agents:slow")
    found = client.get(f"/api/runs/{run}").json()
    assert [r["execution"]["status"] for r in found["requests"]] == ["done"]
    client.close()


@pytest.mark.parametrize("pause", [0.0, 0.02, 0.12, 0.25])
@pytest.mark.parametrize("command", ["serve", "demo"])
def test_ctrl_c_twice_ends_it_quietly(place: Place, command: str, pause: float) -> None:
    options = ("--port", "0", "--no-auth", *(("--no-open",) if command == "demo" else ()))
    server, _ = place.start(command, *options, until="Sayso")
    assert server.stdout is not None
    while command == "demo" and "Ctrl-C" not in server.stdout.readline():
        pass
    for _ in range(2):
        server.send_signal(signal.SIGINT)
        time.sleep(pause)
    assert server.wait(60) in (0, -signal.SIGINT)  # the second may come when all is over
    assert place.log(0) == ""


@pytest.mark.parametrize("agent", ["patient", "blocked"])
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_second_ctrl_c_interrupts_running_call(place: Place, command: str, agent: str) -> None:
    place.ask()
    with Inbox(place.url) as inbox:
        (request,) = inbox.pending_sync().items
        inbox.decide_sync(request.id, request.approve(), by="ana")
    options = ("--port", "0", "--no-auth") if command == "serve" else ()
    server, _ = place.start(command, f"agents:{agent}", *options, until="(store: ")
    until((place.folder / "began").exists)
    server.send_signal(signal.SIGINT)
    until(lambda: "waiting for 1 run" in place.log(0))
    assert server.poll() is None
    server.send_signal(signal.SIGINT)
    assert server.wait(60) == 0
    assert "Traceback" not in place.log(0)
    with Inbox(place.url) as inbox:
        (request,) = inbox.pending_sync().items
        assert request.kind == "in_doubt"


@pytest.mark.long
def test_waiting_client_is_released_at_stop(place: Place) -> None:
    server, client = place.serve()
    made = client.post(
        "/api/requests", json={"tool": "pay", "args": {}}, headers={"Idempotency-Key": "k"}
    ).json()
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(client.get, f"/api/requests/{made['id']}/wait?timeout=100")
        time.sleep(0.5)
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        answer = waiting.result(60)
        assert server.wait(60) == 0
    assert time.monotonic() - began < 4  # less than it gives to streams that do not end
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert "Traceback" not in place.log(0)
    client.close()


@pytest.mark.long
def test_server_without_workers_resumes_nothing(place: Place) -> None:
    _, client = place.serve("agents:agent", "--workers", "0")
    say(client, "Weather in Oslo")
    approve_all(client)
    time.sleep(0.5)
    assert Effects.beside(place.url).all() == []
    worker, _ = place.start("worker", "agents:agent", until="Resuming runs of demo")
    until(lambda: [r for r in _runs(client) if r["status"] == "done"])
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert "of demo: done in" in place.log(1)
    client.close()


@pytest.mark.long
@pytest.mark.parametrize("page", ["", "https://approvals.example.com/"])
def test_sign_in_link_uses_page_url(place: Place, page: str) -> None:
    options = ["--page-url", page] if page else []
    served = Terminal("serve", "--port", "0", *options, cwd=place.folder, env=place.env)
    served.expect(r"Sayso is at (http://[\d.:]+)")
    address = served.match[1]
    served.expect(r"Sign in.*: (\S+)/login#(\S+)")
    assert served.match[1] == (page.rstrip("/") or address)
    signed_in = httpx.post(f"{address}/api/login", json={"token": served.match[2]})
    assert signed_in.status_code == 204
    served.kill(signal.SIGTERM)
    served.expect(pexpect.EOF)
    served.close()
    assert served.exitstatus == 0


@pytest.mark.long
def test_worker_logs_each_step(place: Place) -> None:
    """One log line and one count each: claimed, resumed, call started, call done, run done."""
    run = place.ask()
    command = ("worker", "agents:slow", "--metrics", "0", "--log-json")
    worker, line = place.start(*command, until="Resuming runs of slow")
    (address,) = re.findall(r"http://127\.0\.0\.1:\d+", line)
    with httpx.Client(base_url=address, timeout=60, verify=False) as client:
        health = client.get("/healthz")
        assert (health.status_code, health.json()["store"]) == (200, "ok")
        assert client.get("/").status_code == 404
        with Inbox(place.url) as inbox:
            (request,) = inbox.pending_sync().items
            inbox.decide_sync(request.id, request.approve(), by="ben")
        page = until(lambda: 'step="done"' in (text := client.get("/metrics").text) and text)
        began = (place.folder / "began").read_text().split()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert began == ["began", "ended"]
    steps = ["taken", "resumed", "call_started", "call_done", "done"]
    for step in steps:
        assert f'sayso_worker_steps_total{{agent="slow",step="{step}"}} 1.0' in page
    assert 'sayso_worker_step_seconds_count{agent="slow",status="done"} 1.0' in page
    lines = [json.loads(line) for line in place.log(0).splitlines()]
    told = [line for line in lines if "step" in line]
    assert [line["step"] for line in told] == steps
    assert {(line["run"], line["agent"]) for line in told} == {(run, "slow")}
    ended = told[3]
    assert (ended["request"], ended["tool"]) == (request.id, "work")
    assert ended["seconds"] >= 2
    assert {line["at"][-1] for line in lines} == {"Z"}  # the time zone is explicit


def test_server_listens_on_unix_socket(place: Place) -> None:
    path = place.folder / "sayso.sock"
    (place.folder / "proxy.toml").write_text('peers = ["unix"]\nheader = "X-User"\n')
    options = ("--host", f"unix:{path}", "--trusted-proxy", "proxy.toml")
    server, _ = place.start("serve", *options, until="Sayso is at unix:")
    assert path.stat().st_mode & 0o777 == 0o660
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost"
    ) as client:
        assert client.get("/api/me", headers={"X-User": "ana"}).json()["name"] == "ana"
    server.send_signal(signal.SIGKILL)
    server.wait()
    again, _ = place.start("serve", *options, until="Sayso is at unix:")  # the socket is left over
    taken = run("serve", *options, cwd=place.folder, env=place.env)
    assert (taken.returncode, "cannot listen on" in taken.stderr) == (1, True)
    again.send_signal(signal.SIGINT)
    again.wait()
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        (["--host", "0.0.0.0"], True),
        (["--host", "::"], True),
        (["--host", "0.0.0.0", "--host-name", "https://approvals.example.com"], False),
        (["--host", "0.0.0.0", "--page-url", "https://approvals.example.com"], False),
        ([], False),
    ],
)
def test_plain_http_for_others_is_warned_of(place: Place, options: list[str], warns: bool) -> None:
    command = ("serve", *options, "--policy", "no-such-file")
    done = run(*command, cwd=place.folder, env=place.env)
    assert ("plain HTTP" in done.stderr) == warns, done.stderr


@pytest.mark.parametrize(
    ("ignored", "warns"),
    [
        (None, False),
        ("", True),
        ("sayso.db\n", True),  # not its key
        ("sayso.db*\n", False),
    ],
)
def test_store_in_git_is_warned_of(place: Place, ignored: str | None, warns: bool) -> None:
    if ignored is not None:
        subprocess.run(["git", "init", "-q", str(place.folder)], check=True)
        (place.folder / ".gitignore").write_text(ignored)
    done = run("serve", "--policy", "no-such-file", cwd=place.folder, env=place.env)
    assert ("in a git repository" in done.stderr) == warns, done.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["serve", "--no-auth", "--host", "0.0.0.0"], "listen on 127.0.0.1"),
        (["serve", "nope"], "does not name an agent"),
        (["serve", "nope:agent"], "no module"),
        (["worker", "agents:agent", "--store", "memory://"], "not shared between processes"),
        (["worker", "agents:agent", "agents:agent"], "two agents"),
        (["worker", "agents:elsewhere"], "uses the store"),
        (["serve", "agents:adapted"], "uses the store"),
        (["serve", "agents:slow", "agents:asking"], "two agents"),
        (["serve", "--workers", "-1"], "--workers -1"),
        (["worker", "agents:agent", "--concurrency", "0"], "at least 1"),
        (["worker", "agents:Nope"], "no attribute"),
        (
            ["worker", "agents:agent", "--metrics", "here"],
            "--metrics here: write [ADDRESS:]PORT, such as 9321",
        ),
        (["worker", "agents:agent", "--metrics", "256.0.0.1:9321"], "cannot listen"),
    ],
)
def test_server_that_cannot_start_prints_one_line(
    place: Place, command: list[str], says: str
) -> None:
    done = run(*command, cwd=place.folder, env=place.env)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_worker_that_only_verifies_runs_no_bot(place: Place) -> None:
    pair = new_key("ed25519")
    place.env |= {"SAYSO_ROW_KEY": "a-row-key-for-this-test-alone-long-enough", "SAYSO_KEY": pair}
    server, _ = place.serve()
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    place.env |= {"SAYSO_KEY": public_key(pair), "SAYSO_TELEGRAM_TOKEN": "1:x"}
    done = run("worker", "agents:agent", cwd=place.folder, env=place.env)
    assert done.returncode != 0
    assert "this key can only verify: use `sayso serve`" in done.stderr


@pytest.mark.parametrize("agent", ["elsewhere", "adapted"])
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_store_defaults_to_that_of_agent(place: Place, command: str, agent: str) -> None:
    del place.env["SAYSO_STORE"]
    options = ("--port", "0") if command == "serve" else ()
    _, line = place.start(command, f"agents:{agent}", *options, until="(store: ")
    assert f"{place.folder}/elsewhere.db" in line
    assert not (place.folder / "sayso.db").exists()
