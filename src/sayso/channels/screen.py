"""The terminal: its width, writing lines to it, and reading one line at a time from it.

Keys typed before a question, or while it is being drawn, are discarded: only what is typed in view
of the question answers it. Bracketed paste tells pasted text apart. The terminal's own line editing
stays on, so nothing is decided before Enter.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from sayso.channels.layout import NARROWEST, WIDEST, Line, Row, rows, wrapped

#: How long keys are ignored after drawing: nobody can have read it yet.
SETTLE_SECONDS = 0.3
#: Terminals cut lines at this length.
LONGEST_LINE = 4_000

_PASTE_ON = "\x1b[?2004h"
_PASTE_OFF = "\x1b[?2004l"
_PASTE_BEGIN = b"\x1b[200~"
_PASTE_END = b"\x1b[201~"
_INTERRUPT = b"\x03"
_COLOURS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
    "windows": ColorSystem.WINDOWS,
}
_FALSE = frozenset({"", "0", "false", "no"})


class Woken(Exception):
    """The request changed while the person was being asked."""


class Watch(Protocol):
    """What a question watches while it waits for an answer."""

    def patience(self) -> float | None:
        """Return the seconds after which time alone may have changed something."""

    def changed(self) -> bool:
        """Return whether the question is out of date."""


@dataclass(frozen=True, slots=True)
class Typed:
    """One line of input, and whether it was pasted."""

    text: str
    pasted: bool = False


def can_prompt() -> bool:
    """Return whether this process can prompt: terminals on both sides, in the foreground, no CI."""
    if os.environ.get("TERM", "") in ("", "dumb"):
        return False
    if os.environ.get("CI", "").lower() not in _FALSE:
        return False
    try:
        on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        return on_terminal and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, ValueError, OSError):  # closed, replaced, or no controlling terminal
        return False


def screen_width() -> int:
    """Return how many columns to use: those of the terminal, within readable limits."""
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (AttributeError, ValueError, OSError):
        setting = os.environ.get("COLUMNS", "")
        columns = int(setting) if setting.isdecimal() else 0
    return min(max(columns or 100, NARROWEST), WIDEST)


def console(*, plain: bool = False) -> Console:
    """Return a console without markup, emoji codes or highlighting. It obeys ``NO_COLOR``."""
    return Console(
        width=screen_width(),
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
    """Print rows as they are, without interpreting markup."""
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
    """Return the control sequences before and after a text of this style."""
    parsed = Style.parse(style)
    allowed = parsed.without_color if no_color else parsed
    begin, _, end = allowed.render("|", color_system=_COLOURS[colours]).partition("|")
    return begin, end


class Screen:
    """A person's terminal, for one question at a time."""

    def __init__(self, *, plain: bool = False) -> None:
        self.plain = plain
        #: Ctrl-C was read as input, so the program still has to get its signal.
        self.interrupted = False
        self._wake_out, self._wake_in = os.pipe()

    def close(self) -> None:
        os.close(self._wake_out)
        os.close(self._wake_in)

    def wake(self) -> None:
        """Interrupt a question. Safe from any OS thread."""
        with contextlib.suppress(OSError):
            os.write(self._wake_in, b"!")

    @property
    def width(self) -> int:
        return screen_width()

    @property
    def height(self) -> int:
        try:
            return max(os.get_terminal_size(sys.stdout.fileno()).lines, 10)
        except OSError:
            return 24

    def show(self, lines: Iterable[Line]) -> None:
        show(console(plain=self.plain), lines)

    def show_rows(self, ready: Iterable[Row]) -> None:
        print_rows(console(plain=self.plain), ready)

    def say(self, words: str, style: str = "") -> None:
        """Print one line. ``words`` must be ours, or inert."""
        self.show([Line(words, style)])

    def settle(self) -> None:
        """Give the person time to look. Keys typed meanwhile do not count."""
        sys.stdout.flush()
        time.sleep(SETTLE_SECONDS)

    def ask(self, question: str, watch: Watch | None = None) -> Typed | None:
        """Return a line typed after this question, or ``None`` at the end of input.

        Raises ``Woken`` as soon as ``watch`` reports a change.
        """
        fd = sys.stdin.fileno()
        with _modes(fd):
            sys.stdout.flush()
            termios.tcflush(fd, termios.TCIFLUSH)
            sys.stdout.write("\n".join(wrapped(question, self.width - 2)) + " ")
            sys.stdout.flush()
            data = self._line(fd, watch)
            # A paste of several lines arrives line by line: read on until its end.
            while data is not None and _PASTE_BEGIN in data and _PASTE_END not in data:
                more = self._line(fd, watch)
                data = None if more is None else data + more
            if data is None:
                sys.stdout.write("\n")
                return None
            bare = data.replace(_PASTE_BEGIN, b"").replace(_PASTE_END, b"")
            words = bare.decode(errors="replace").removesuffix("\n").removesuffix("\r")
            return Typed(words, pasted=_PASTE_BEGIN in data)

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
        # Ctrl-D submits what was typed so far, but only Enter completes a line.
        return data if data.endswith(b"\n") else None

    def show_pages(self, ready: list[Row], start: int = 0, watch: Watch | None = None) -> int:
        """Show rows page by page. Return how many were shown when the person stopped."""
        last = start
        while last < len(ready):
            first = last
            last = min(first + max(self.height - 4, 5), len(ready))
            self.show_rows(ready[first:last])
            if last < len(ready):
                where = f"rows {first + 1}-{last} of {len(ready)}"
                typed = self.ask(f"{where}: Enter for more, q to go back:", watch)
                if typed is None or typed.text.strip().lower() in ("q", "b"):
                    break
        return last


_restore: list[Callable[[], None]] = []


@contextlib.contextmanager
def _modes(fd: int) -> Iterator[None]:
    """Turn bracketed paste on. Outside of the main thread, make Ctrl-C end the line as well.

    Signals go to the main thread, so a prompt in another OS thread would not notice Ctrl-C.
    """
    before = termios.tcgetattr(fd)

    def undo() -> None:
        with contextlib.suppress(termios.error, OSError, ValueError):
            sys.stdout.write(_PASTE_OFF)
            sys.stdout.flush()
            termios.tcsetattr(fd, termios.TCSANOW, before)

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


@atexit.register
def _restore_terminal() -> None:
    """Restore the terminal's modes: a prompt may still be open when the program ends."""
    for undo in list(_restore):
        undo()
