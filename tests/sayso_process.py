"""``sayso`` commands in processes that start at once, for tests of what the commands do.

An interpreter that has imported every command forks a child for each. It has one OS thread and
opens no store, so a fork of it is as good as ``python -m sayso`` and costs a tenth: it has its own
arguments, environment, folder, signals and terminal, and ends as any interpreter does. Tests of how
a command loads, or of the interpreter's own options, start a new interpreter.

``start`` gives a process with pipes, ``run`` waits for one, ``run_python`` for a program that uses
the same modules, ``Piped`` is one that is fed bytes
while it runs, and ``Terminal`` is one in a pseudo-terminal. All processes of a test run's worker
come from the same interpreter, which ends with the worker.

``PythonForks`` does the same for other programs, from an interpreter that has imported what they
need most of their time for: the frameworks.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pty
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pexpect.fdpexpect import fdspawn
from waiting import PATIENCE, until

#: What the commands import while they run.
_MODULES = (
    *("sayso.cli.main", "sayso.channels.prompt", "sayso.channels.terminal"),
    *("sayso.demo.web", "sayso.demo.tour", "sayso.testing", "sayso.audit", "sayso.worker"),
    *("sayso.server.serving", "sayso.server.app", "sayso.server.logs", "sayso.server.monitoring"),
    *("sayso.stores.sqlite", "sayso.stores.postgres", "sayso.stores.memory"),
    *("sayso.hooks.program", "sayso.hooks.local"),
    *("typer._adapters", "jsonschema", "uvicorn.protocols.http.httptools_impl", "uvloop"),
)


class Process:
    """A running command, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(
        self, forks: _Forks, pid: int, stdout: IO[str] | None, stderr: IO[str] | None
    ) -> None:
        self._forks = forks
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        if self.returncode is None:
            self.returncode = self._forks.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end. Return the exit code."""
        return until(lambda: self.poll() is not None and [self.returncode], seconds=timeout)[0]  # type: ignore[index,return-value]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end. Return what was written since the last read, and close the pipes.

        Kill a process that has not ended after so many seconds.
        """
        out = err = ""
        watch = threading.Timer(timeout or 0, self.kill)
        if timeout is not None:
            watch.start()
        if self.stdout is not None and not self.stdout.closed:
            with self.stdout:
                out = self.stdout.read()
        self.wait(timeout or PATIENCE)
        watch.cancel()
        if self.stderr is not None and not self.stderr.closed:
            with self.stderr:
                self.stderr.seek(0)
                err = self.stderr.read()
        return out, err


def start(
    *args: str, cwd: Path, env: Mapping[str, str], stdin: str = "", stderr: IO[Any] | None = None
) -> Process:
    """Start ``sayso`` with pipes. Its stderr is kept for ``communicate``, or goes to a file."""
    return _start(_forks(), ("sayso", *args), cwd, env, stdin, stderr)


def _start(
    forks: _Forks,
    command: tuple[str, ...],
    cwd: Path,
    env: Mapping[str, str],
    stdin: str,
    stderr: IO[Any] | None,
) -> Process:
    kept = None if stderr is not None else tempfile.TemporaryFile("w+")  # noqa: SIM115
    reads, writes = os.pipe()
    given, gives = os.pipe()
    os.write(gives, stdin.encode())
    os.close(gives)
    errors = stderr if kept is None else kept
    assert errors is not None
    pid = forks.spawn(command, cwd, env, [given, writes, errors.fileno()])
    os.close(given)
    os.close(writes)
    return Process(forks, pid, open(reads, encoding="utf-8"), kept)


def run(
    *args: str, cwd: Path, env: Mapping[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``sayso`` with pipes, and wait for it."""
    process = start(*args, cwd=cwd, env=env, stdin=stdin)
    out, err = process.communicate()
    return subprocess.CompletedProcess(args, process.wait(), out, err)


def run_python(*command: str) -> subprocess.CompletedProcess[str]:
    """Run ``FILE ...`` or ``-c CODE ...``, and wait for it."""
    process = _start(_forks(), command, Path.cwd(), os.environ, "", None)
    out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.wait(), out, err)


class Piped:
    """``sayso`` with three pipes of bytes, and the methods of ``subprocess.Popen`` for them."""

    def __init__(self, *args: str, cwd: Path, env: Mapping[str, str]) -> None:
        given, gives = os.pipe()
        reads, writes = os.pipe()
        hears, complains = os.pipe()
        theirs = [given, writes, complains]
        pid = _forks().spawn(("sayso", *args), cwd, env, theirs)
        self._process = Process(_forks(), pid, None, None)
        for number in theirs:
            os.close(number)
        self.stdin = open(gives, "wb")  # noqa: SIM115
        self.stdout = open(reads, "rb")  # noqa: SIM115
        self.stderr = open(hears, "rb")  # noqa: SIM115

    def communicate(self, sent: bytes = b"", timeout: float = PATIENCE) -> tuple[bytes, bytes]:
        """Send the rest of the input, and wait for the end. Return what was written since the last
        read, and close the pipes."""
        with contextlib.suppress(BrokenPipeError):
            if sent:
                self.stdin.write(sent)
            self.stdin.close()
        out = b"" if self.stdout.closed else self.stdout.read()
        error = self.stderr.read()
        self.stdout.close()
        self.stderr.close()
        self.wait(timeout)
        return out, error

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end. Return the exit code."""
        return self._process.wait(timeout)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()


class Terminal(fdspawn):  # type: ignore[misc]
    """``sayso`` in a pseudo-terminal, with the methods of ``pexpect.spawn`` that tests use."""

    def __init__(
        self, *args: str, cwd: Path, env: Mapping[str, str], dimensions: tuple[int, int] = (24, 80)
    ) -> None:
        main, other = pty.openpty()
        super().__init__(main, encoding="utf-8", timeout=PATIENCE)
        self.setwinsize(*dimensions)
        command = ("sayso", *args)
        pid = _forks().spawn(command, cwd, env, [other], terminal=True)
        self._process = Process(_forks(), pid, None, None)
        os.close(other)

    def setwinsize(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self.child_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text: str) -> int:
        """Type. A person is slower than the program that has just shown its prompt."""
        time.sleep(0.05)
        written: int = super().send(text)
        return written

    def sendcontrol(self, letter: str) -> None:
        """Type a letter with the Control key."""
        self.send(chr(ord(letter) - ord("a") + 1))

    def sendintr(self) -> None:
        """Type Ctrl-C."""
        self.sendcontrol("c")

    def kill(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        self._process.send_signal(number)

    def close(self, force: bool = False) -> None:
        """Close the terminal, which hangs up on the process, and wait for its ``exitstatus``.

        With ``force``, kill the process, too.
        """
        super().close()
        if force:
            self._process.kill()
        self.exitstatus = self._process.wait()


class PythonForks:
    """Python programs in processes that start at once, with these modules already imported.

    The options are the interpreter's own. ``close`` ends it and all programs that still run.
    """

    def __init__(self, *modules: str, options: tuple[str, ...] = ()) -> None:
        self._forks = _Forks(modules, options)
        self.close = self._forks.close

    def start(
        self, *command: str, cwd: Path, env: Mapping[str, str], stderr: IO[Any] | None = None
    ) -> Process:
        """Start ``FILE ...``, ``-m MODULE ...`` or ``sayso ...``, with nothing to read on stdin."""
        return _start(self._forks, command, cwd, env, "", stderr)

    def start_logged(
        self, *command: str, cwd: Path, env: Mapping[str, str], log: IO[Any]
    ) -> Process:
        """Start a program whose stdout and stderr go to a file."""
        with open(os.devnull) as nothing:
            files = [nothing.fileno(), log.fileno(), log.fileno()]
            pid = self._forks.spawn(command, cwd, env, files)
        return Process(self._forks, pid, None, None)


class _Forks:
    """The interpreter that forks, and the socket to it."""

    def __init__(self, modules: tuple[str, ...], options: tuple[str, ...] = ()) -> None:
        self._socket, theirs = socket.socketpair()
        self._server = subprocess.Popen(
            [sys.executable, *options, __file__, str(theirs.fileno()), *modules],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._answers = self._socket.makefile("r")
        self._one_at_a_time = threading.Lock()

    def spawn(
        self,
        command: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        files: list[int],
        *,
        terminal: bool = False,
    ) -> int:
        """Start a command with these as its standard files. Return its process id."""
        request = {"command": command, "cwd": str(cwd), "env": dict(env), "terminal": terminal}
        pid: int = self._ask(request, files)
        return pid

    def ended(self, pid: int) -> int | None:
        """Return the exit code of a command that has ended. This forgets it."""
        code: int | None = self._ask({"pid": pid}, [])
        return code

    def _ask(self, request: dict[str, Any], files: list[int]) -> Any:
        words = json.dumps(request).encode()
        with self._one_at_a_time:
            socket.send_fds(self._socket, [struct.pack("I", len(words))], files)
            self._socket.sendall(words)
            answer = self._answers.readline()
        assert answer, "the interpreter that forks has died: see its stderr"
        return json.loads(answer)

    def close(self) -> None:
        """End the interpreter and all commands that still run."""
        self._answers.close()
        self._socket.close()
        self._server.wait(PATIENCE)


_running: list[_Forks] = []
_starting = threading.Lock()


def _forks() -> _Forks:
    with _starting:
        if not _running:
            _running.append(_Forks(_MODULES))
            atexit.register(_running[0].close)
    return _running[0]


# -- in the interpreter


def _serve(connection: socket.socket, modules: list[str]) -> list[str]:
    """Fork a child for each request. Return in the children only, with the command to run."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that collections in the children do not copy all that was imported
    children: set[int] = set()
    while True:
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        if not head:
            break
        size = struct.unpack("I", head)[0]
        words = b""
        while len(words) < size:
            words += connection.recv(size - len(words))
        request = json.loads(words)
        if "pid" in request:
            answer = _exit_code(request["pid"])
            if answer is not None:
                children.discard(request["pid"])
        else:
            answer = os.fork()
            if answer == 0:
                connection.close()
                return _become(request, files)
            children.add(answer)
            for number in files:
                os.close(number)
        connection.sendall(json.dumps(answer).encode() + b"\n")
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    """Give this process everything that a new one would have. Return the command to run."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
        files *= 3
    for standard, number in enumerate(files):
        os.dup2(number, standard)
    for number in set(files):
        os.close(number)
    sys.stdin = sys.__stdin__ = _text(0, "r", "strict")
    sys.stdout = sys.__stdout__ = _text(1, "w", "strict")
    sys.stderr = sys.__stderr__ = _text(2, "w", "backslashreplace")
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    more = os.environ.get("PYTHONPATH", "")
    command: list[str] = request["command"]
    is_file = command[0] not in ("sayso", "-m", "-c")
    beside = os.path.dirname(command[0]) if is_file else os.getcwd()
    sys.path[:1] = [beside, *filter(None, more.split(os.pathsep))]
    return command


def _text(number: int, mode: str, errors: str) -> io.TextIOWrapper:
    binary = open(number, mode + "b", closefd=False)  # noqa: SIM115
    eager = os.isatty(number) or number == 2
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=eager)


def _run(command: list[str]) -> None:
    """Run ``sayso ...``, or what ``python`` would run as a new ``__main__``."""
    if command[0] == "sayso":
        from sayso.cli.entry import main

        sys.argv = command
        main()
        return
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy._run_module_as_main(command[1])  # type: ignore[attr-defined]
    elif command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        exec(compile(command[1], "<string>", "exec"), module.__dict__)
    else:
        sys.argv = command
        module.__dict__.update(__file__=command[0], __builtins__=builtins)
        exec(compile(Path(command[0]).read_bytes(), command[0], "exec"), module.__dict__)


if __name__ == "__main__":
    _run(_serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]))
