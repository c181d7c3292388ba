"""How long a fresh interpreter takes to import a module, in milliseconds."""

from __future__ import annotations

import json
import subprocess
import sys
import time

WORK = "import time; t = time.perf_counter(); import {}; print((time.perf_counter() - t) * 1e3)"


def main(module: str) -> None:
    command = [sys.executable, "-c", WORK.format(module)]
    subprocess.run(command, check=True, capture_output=True)  # bytecode is written once
    began = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    whole = (time.perf_counter() - began) * 1e3
    print(json.dumps({"wall_ms": float(done.stdout), "process_ms": whole}))


if __name__ == "__main__":
    main(sys.argv[1])
