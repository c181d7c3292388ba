"""Measure `sayso serve` with many paused runs: time until ready, memory, CPU while idle.

python idle.py URL SECONDS
"""

from __future__ import annotations

import compileall
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path

import sayso


def memory_of(pid: int) -> int:
    """Bytes of memory that are the process's own: shared pages of files do not count."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used, to the microsecond."""
    scheduled = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        scheduled += int((task / "schedstat").read_text("ascii").split()[0])
    return scheduled / 1e9


def main(url: str, seconds: float) -> None:
    command = [str(Path(sys.executable).parent / "sayso"), "serve", "scene:bench"]
    command += ["--port", "0", "--no-auth", "--store", url]
    # As pip leaves what it installs; a checkout may be run where no bytecode is written.
    compileall.compile_dir(Path(sayso.__file__).parent, quiet=1)
    began = time.perf_counter()
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )
    try:
        assert server.stdout is not None
        host = server.stdout.readline().split()[3].removeprefix("http://")
        client = http.client.HTTPConnection(host)
        client.request("GET", "/api/requests?status=pending&limit=50")
        answer = client.getresponse()
        listed = len(json.loads(answer.read())["items"])
        ready, ready_cpu = time.perf_counter() - began, cpu_of(server.pid)
        assert answer.status == 200
        time.sleep(2)  # what it does on starting is not idling
        cpu, then = cpu_of(server.pid), time.perf_counter()
        time.sleep(seconds)
        cpu = (cpu_of(server.pid) - cpu) / (time.perf_counter() - then)
        figures = {
            "ready_ms": ready * 1e3,
            "ready_cpu_ms": ready_cpu * 1e3,
            "idle_cpu_percent": cpu * 100,
            "memory_bytes": memory_of(server.pid),
            "listed": listed,
        }
        print(json.dumps(figures))
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
