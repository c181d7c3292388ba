"""Run a function in a forked child of the test's process."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def fork(body: Callable[[], object]) -> int:
    """Start the function in a child, which exits with 0 if it returns. Return the child's id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        body()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def succeeded(pid: int) -> bool:
    """Wait for a child, and return whether its function returned."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def in_child(body: Callable[[], object]) -> bool:
    """Run the function in a child to its end. Return whether it returned."""
    return succeeded(fork(body))
