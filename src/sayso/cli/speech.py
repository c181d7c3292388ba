"""An agent's words as they come: inert, wrapped by words, and behind a gutter of ours."""

from __future__ import annotations

import re
from typing import TextIO

from rich.cells import cell_len

from sayso import text
from sayso.channels.layout import wrapped

GUTTER = "  │ "
_WORD = re.compile(r"\n|[^\S\n]*\S+|[^\S\n]+")
_BLANKS = re.compile(r"\s+")
_LONGEST = 400  # letters that are held back in the hope of a word's end


class Speech:
    """One answer on its way; a word is written when its end has come."""

    def __init__(self, out: TextIO, width: int) -> None:
        self._out = out
        self._room = width - len(GUTTER)
        self._rest = ""
        self._column = 0
        self._began = False

    def add(self, piece: str) -> None:
        """Take a piece of any size."""
        whole = self._rest + piece
        cut = max((found.start() for found in _BLANKS.finditer(whole)), default=0)
        if len(whole) - cut > _LONGEST:
            cut = len(whole)
        self._rest = whole[cut:]
        self._write(whole[:cut])

    def end(self) -> None:
        """Write what is left, and end the line."""
        self._write(self._rest.rstrip())
        self._rest = ""
        if self._began:
            self._out.write("\n")
        self._began = False
        self._out.flush()

    def _write(self, words: str) -> None:
        shown = text.visible(words).text.replace("\t", "    ")
        for word in _WORD.findall(shown):
            self._place(word)
        self._out.flush()

    def _place(self, word: str) -> None:
        if word == "\n":
            self._line()
            return
        if self._column and self._column + cell_len(word.rstrip()) > self._room:
            self._line()
            word = word.lstrip()
        for number, part in enumerate(wrapped(word, self._room)):
            if number:
                self._line()
            self._put(part)

    def _line(self) -> None:
        self._out.write(f"\n{GUTTER}" if self._began else GUTTER)
        self._began, self._column = True, 0

    def _put(self, part: str) -> None:
        if not self._began:
            self._line()
        self._out.write(part)
        self._column += cell_len(part)
