"""The terminal itself: how wide it is, what is written to it, and one line at a time read from it.

Keys that were typed before a question, or while it was being drawn, are thrown away: only what is
typed in view of the question answers it. Pasted text is told apart by bracketed paste. The
terminal's own line editing stays on, so nothing is decided before Enter.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from sayso.channels.layout import NARROWEST, WIDEST, Line, Row, rows, wrapped

try:
    import termios
except ImportError:  # Windows: no prompt there, decide by flags or in the browser
    termios = None  # type: ignore[assignment]

#: How long keys are ignored after something was drawn: nobody has read it yet.
SETTLE_SECONDS = 0.3
#: A terminal hands over no longer line than this.
LONGEST_LINE = 4_000

_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_BEGIN, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_INTERRUPT = b"\x03"
_COLOURS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
    "windows": ColorSystem.WINDOWS,
}
_FALSE = frozenset({"", "0", "false", "no"})


class Woken(Exception):
    """Something happened elsewhere while the person was thinking."""


class Watch(Protocol):
    """What a question keeps an eye on while it waits."""

    def patience(self) -> float | None:
        """Seconds after which the clock alone may have changed something."""
        ...

    def changed(self) -> bool:
        """Whether the question is not the same any more."""
        ...


@dataclass(frozen=True, slots=True)
class Typed:
    """One line as a person gave it."""

    text: str
    pasted: bool = False


def can_prompt() -> bool:
    """Whether somebody can be asked here: a terminal on both sides, in the foreground, no CI."""
    if termios is None or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    if os.environ.get("CI", "").lower() not in _FALSE:
        return False
    try:
        both = sys.stdin.isatty() and sys.stdout.isatty()
        return both and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, ValueError, OSError):  # closed, replaced, or no controlling terminal
        return False


def width_of(stream: Any) -> int:
    """How many columns to use: the terminal's own, within what can be read."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, ValueError, OSError):
        given = os.environ.get("COLUMNS", "")
        columns = int(given) if given.isdecimal() else 0
    return min(max(columns or 100, NARROWEST), WIDEST)


def console(*, plain: bool = False, stderr: bool = False) -> Console:
    """A console without markup, emoji codes and highlighting; ``NO_COLOR`` is obeyed."""
    width = width_of(sys.stderr if stderr else sys.stdout)
    return Console(
        stderr=stderr,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        no_color=True if plain else None,
        color_system=None if plain else "auto",
    )


def show(target: Console, lines: Iterable[Line]) -> None:
    """Print lines, wrapped behind their gutters."""
    print_rows(target, rows(lines, target.width))


def print_rows(target: Console, ready: Iterable[Row]) -> None:
    """Print rows as they are; no markup is read, because none is looked for."""
    colours = target.color_system
    target.file.writelines(
        f"{_painted(g, gs, colours, target.no_color)}{_painted(t, ts, colours, target.no_color)}\n"
        for g, gs, t, ts in ready
    )


def _painted(words: str, style: str, colours: str | None, no_color: bool) -> str:
    if not style or not words or colours is None:
        return words
    begin, end = _controls(style, colours, no_color)
    return f"{begin}{words}{end}"


@functools.cache
def _controls(style: str, colours: str, no_color: bool) -> tuple[str, str]:
    """What a terminal is told before and after a text of that style."""
    parsed = Style.parse(style)
    wanted = parsed.without_color if no_color else parsed
    begin, _, end = wanted.render("|", color_system=_COLOURS[colours]).partition("|")
    return begin, end


class Screen:
    """A person's terminal; only one question stands on it at a time."""

    def __init__(self, *, plain: bool = False) -> None:
        self.plain = plain
        #: Ctrl-C was typed where the signal goes elsewhere: the program is owed one.
        self.interrupted = False
        self._wake_out, self._wake_in = os.pipe()

    def close(self) -> None:
        """Let go of the pipe that wakes it."""
        os.close(self._wake_out)
        os.close(self._wake_in)

    def wake(self) -> None:
        """Interrupt a question, from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._wake_in, b"!")

    @property
    def width(self) -> int:
        """Columns, as of now."""
        return width_of(sys.stdout)

    @property
    def height(self) -> int:
        """Rows, as of now."""
        try:
            return max(os.get_terminal_size(sys.stdout.fileno()).lines, 10)
        except OSError:
            return 24

    def show(self, lines: Iterable[Line]) -> None:
        """Draw lines."""
        show(console(plain=self.plain), lines)

    def show_rows(self, ready: Iterable[Row]) -> None:
        """Draw rows that are wrapped already."""
        print_rows(console(plain=self.plain), ready)

    def say(self, words: str, style: str = "") -> None:
        """One line of our own, or of text that is inert already."""
        self.show([Line(words, style)])

    def settle(self) -> None:
        """Give the eye time to arrive; what is typed meanwhile does not count."""
        sys.stdout.flush()
        time.sleep(SETTLE_SECONDS)

    def ask(self, question: str, watch: Watch | None = None) -> Typed | None:
        """One line typed after this question; ``None`` at the end of input.

        ``watch`` is asked now and then whether anything changed; then ``Woken`` is raised.
        """
        fd = sys.stdin.fileno()
        with _modes(fd):
            sys.stdout.flush()
            termios.tcflush(fd, termios.TCIFLUSH)
            sys.stdout.write("\n".join(wrapped(question, self.width - 2)) + " ")
            sys.stdout.flush()
            data = self._line(fd, watch)
            # A paste of several lines comes as several lines: take them all, up to its end.
            while data is not None and _PASTE_BEGIN in data and _PASTE_END not in data:
                more = self._line(fd, watch)
                data = None if more is None else data + more
            if data is None:
                sys.stdout.write("\n")
            return None if data is None else _typed(data)

    def _line(self, fd: int, watch: Watch | None) -> bytes | None:
        while True:
            patience = None if watch is None else watch.patience()
            ready, _, _ = select.select([fd, self._wake_out], [], [], patience)
            if fd in ready:
                break
            if ready:
                os.read(self._wake_out, 4096)
            if watch is not None and watch.changed():
                sys.stdout.write("\n")
                raise Woken
        data = os.read(fd, 65_536)
        if data.endswith(_INTERRUPT):
            self.interrupted = True
            raise KeyboardInterrupt
        # Ctrl-D hands over what was typed so far: only Enter makes a line of it.
        return data if data.endswith(b"\n") else None

    def turn_over(self, ready: list[Row], start: int = 0, watch: Watch | None = None) -> int:
        """Show rows page by page; how many were on the screen when the person had enough."""
        last = start
        while last < len(ready):
            first, last = last, min(last + max(self.height - 4, 5), len(ready))
            self.show_rows(ready[first:last])
            if last < len(ready):
                where = f"rows {first + 1}-{last} of {len(ready)}"
                typed = self.ask(f"{where}: Enter for more, q to go back:", watch)
                if typed is None or typed.text.strip().lower() in ("q", "b"):
                    break
        return last


def _typed(data: bytes) -> Typed:
    bare = data.replace(_PASTE_BEGIN, b"").replace(_PASTE_END, b"")
    words = bare.decode(errors="replace").removesuffix("\n").removesuffix("\r")
    return Typed(words, pasted=_PASTE_BEGIN in data)


_restore: list[Callable[[], None]] = []


@contextlib.contextmanager
def _modes(fd: int) -> Iterator[None]:
    """Bracketed paste on; in a thread, Ctrl-C ends the line, because the signal goes elsewhere."""
    before = termios.tcgetattr(fd)
    undo = _undo(fd, before)
    _restore.append(undo)
    try:
        if threading.current_thread() is not threading.main_thread():
            ours = termios.tcgetattr(fd)
            ours[6][termios.VINTR] = bytes([os.fpathconf(fd, "PC_VDISABLE")])
            ours[6][termios.VEOL] = _INTERRUPT
            termios.tcsetattr(fd, termios.TCSANOW, ours)
        sys.stdout.write(_PASTE_ON)
        yield
    finally:
        undo()
        _restore.remove(undo)


def _undo(fd: int, before: list[Any]) -> Callable[[], None]:
    def undo() -> None:
        with contextlib.suppress(termios.error, OSError, ValueError):
            sys.stdout.write(_PASTE_OFF)
            sys.stdout.flush()
            termios.tcsetattr(fd, termios.TCSANOW, before)

    return undo


@atexit.register
def _restore_terminal() -> None:
    """A prompt may still be open in its thread when the program ends."""
    for undo in list(_restore):
        undo()
