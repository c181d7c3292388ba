"""How long a fresh interpreter takes for an import statement, in milliseconds."""

from __future__ import annotations

import json
import subprocess
import sys
import time

WORK = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{}
print((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)
"""


def main(statement: str) -> None:
    command = [sys.executable, "-c", WORK.format(statement)]
    subprocess.run(command, check=True, capture_output=True)  # bytecode is written once
    began = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    whole = (time.perf_counter() - began) * 1e3
    wall, cpu = map(float, done.stdout.split())
    print(json.dumps({"wall_ms": wall, "cpu_ms": cpu, "process_ms": whole}))


if __name__ == "__main__":
    main(sys.argv[1])
