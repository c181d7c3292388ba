"""The part of the shell's language that Sayso understands, and nothing else.

``parse`` returns the simple commands of a text, each with exactly the words that a shell passes to
the program. It understands simple commands, pipes, lists (``;``, ``&&``, ``||``, newlines), ``if``,
quotes, here-documents, and redirections to and from files that are named literally and come last. A
character that belongs to none of these raises ``UnclearCommand`` with a sentence for people: there
is no recovery, and no form that is skipped. ``tests/hooks/test_shell.py`` compares the words with
those that bash and zsh really pass.

Each character is looked at once, and long texts are refused, so the cost is bounded. Standard
library only: the hook imports this module.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, NoReturn

MAX_CHARACTERS = 50_000
MAX_WORDS = 500
_MAX_PIECES = 1000
_MAX_DEPTH = 10


class UnclearCommand(Exception):
    """The command is not understood. The message is a sentence that says why."""


class Word(NamedTuple):
    """One word of a command, as the program gets it."""

    text: str
    #: "bare" if nothing in it is quoted; "quoted"; "glob" if it is a pattern of file names, which
    #: the shell replaces by those that match; "variable" if it contains one of ``VARIABLES``.
    form: str = "bare"


class SimpleCommand(NamedTuple):
    """One program with its arguments and redirections."""

    words: tuple[Word, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    #: Whether its input is the output of the command before it.
    piped: bool = False
    #: Whether it has any redirection: one of a here-document or of ``2>&1`` names no file.
    redirected: bool = False

    def __str__(self) -> str:
        return " ".join(word.text for word in self.words)


#: Variables that hold no secret. Only a program that prints its arguments may get one.
VARIABLES = frozenset({"PWD", "OLDPWD", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "PATH", "?"})

_TOKEN = re.compile(
    r"(?P<blank>[ \t]+)"
    r"|(?P<duplicate>(?:2>&1|1?>&2)(?=[ \t\n;|&]|$))"
    r"|(?P<document><<(?![-<]))"
    r"|(?P<read>0?<(?![<&>(]))"
    r"|(?P<write>[12]?>>(?![|&!>])|[12]?>(?![|&!(>])|&>(?![>|&!(]))"
    r"|(?P<operator>&&|\|\|(?!\|)|\|(?![|&])|;(?![;&|])|\n)"
    # A shell without comments would run "#", which does not exist.
    r"|(?<![^;\n])(?P<comment>#[A-Za-z0-9_ ,.:/-]*(?=\n|$))"
)
#: The name of a here-document: in quotes, or not.
_DOCUMENT = re.compile(
    r"[ \t]*(?:'([A-Za-z_]\w*)'|\"([A-Za-z_]\w*)\"|([A-Za-z_]\w*))(?=[ \t\n;|&>]|$)", re.A
)
_WORD_END = " \t\n;|&<>"
_PIECE = re.compile(
    # Whole words whose characters mean something else in other places.
    rf"(?<![^{_WORD_END}])(?P<whole>(?:\[|\]|\{{\}}|!=?|=)(?=[{_WORD_END}]|$))"
    r"|(?P<plain>[\w@%+:,./-]+)"
    r"|(?P<glob>[*?]+)"
    r"|'(?P<single>[^']*)'"
    r'|(?P<double>")'
    r"|\\(?P<escape>[^\n])"
    r"|\$(?P<variable>\?|[A-Za-z_]\w*)"
    # ``HEAD~2``, ``main^``, ``@{upstream}``, ``a=b`` and ``a#b``.
    rf"|(?<=[\w\]}}^~])(?P<tilde>~)|(?<=@)(?P<brace>\{{[\w-]*\}})|(?<=[^{_WORD_END}])(?P<inner>\^|=(?!~)|#)",
    re.A,
)
_DOUBLE = re.compile(r'(?:[^"\\$`!]|\\[^\n]|\$(?=["|) ])|!(?=[" ]))*')
_DOUBLE_ESCAPE = re.compile(r'\\([\\"$`])')
_VARIABLE = re.compile(r"\$(\?|[A-Za-z_]\w*)", re.A)
_ASSIGNMENT = re.compile(r"\w+(\[.*\])?\+?=", re.A | re.S)
#: Control characters, and others that a terminal does not show, except for newline and tab.
_INVISIBLE = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")

_RESERVED = frozenset(
    {
        *("for", "while", "until", "case", "select", "function", "coproc", "do", "done", "esac"),
        *(
            "in",
            "[[",
            "]]",
            "{",
            "}",
            "!",
            "foreach",
            "repeat",
            "end",
            "then",
            "else",
            "elif",
            "fi",
        ),
    }
)
_AFTER_IF = {"if": ("then",), "then": ("elif", "else", "fi"), "elif": ("then",), "else": ("fi",)}

#: What a text that is not understood begins with, and what to say about it.
_REASONS = (
    ("$((", "shell arithmetic, which can run other commands"),
    ("$[", "shell arithmetic, which can run other commands"),
    ("((", "shell arithmetic, which can run other commands"),
    ("$(", "a command substitution, whose result is only known when it runs"),
    ("`", "a command substitution, whose result is only known when it runs"),
    ("${", "a parameter expansion, whose result is only known when it runs"),
    ("$'", "a quote with escapes, which is not analysed"),
    ('$"', "a translated quote, which is not analysed"),
    ("$", "a variable, whose value is only known when it runs"),
    ("<(", "a process substitution, which runs another command"),
    (">(", "a process substitution, which runs another command"),
    ("<<", "a here-document of a form that is not analysed"),
    ("<", "a redirection of a form that is not analysed"),
    (">", "a redirection of a form that is not analysed"),
    ("&>", "a redirection of a form that is not analysed"),
    ("&", "a background job, which continues after the command"),
    ("(", "a subshell, a function or an array, which is not analysed"),
    (")", "a subshell, a function or an array, which is not analysed"),
    ("{", "a brace expansion or a group, which is not analysed"),
    ("}", "a brace expansion or a group, which is not analysed"),
    ("~", "a tilde expansion, whose result is only known when it runs"),
    ("[", "a pattern with brackets, which is not analysed"),
    ("]", "a pattern with brackets, which is not analysed"),
    ("!", "a negation or a history expansion, which is not analysed"),
    ("#", "a comment of a form that is not analysed"),
    ("\\\n", "a line that continues after a backslash, which hides where a word ends"),
    ("'", "a quote that is not closed"),
    ('"', "a quote that is not closed"),
    ("|", "a pipe of a form that is not analysed"),
    (";", "a list of a form that is not analysed"),
)


@lru_cache(maxsize=128)
def parse(text: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands in the order of the text.

    Raise ``UnclearCommand`` if any part of it is not understood.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnclearCommand("The command is too long to be analysed.")
    parser = _Parser(_tokens(text))
    parser.sequence(())
    return tuple(parser.commands)


class _Redirection(NamedTuple):
    #: "read" or "write", or "" if no file is opened.
    kind: str
    target: str = ""


#: A word, a redirection, or an operator.
_Token = Word | _Redirection | str


def _unclear(text: str, position: int = 0) -> NoReturn:
    begins = (words for start, words in _REASONS if text.startswith(start, position))
    words = next(begins, "a character that is not plain text")
    raise UnclearCommand(f"The command contains {words}.")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    documents: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            word, position = _word(text, position)
            tokens.append(word)
        elif match.lastgroup == "operator":
            tokens.append(match[0])
            position = match.end()
            if match[0] == "\n":
                position = _skip_documents(text, position, documents)
        elif match.lastgroup in ("blank", "comment"):
            position = match.end()
        else:
            redirection, position = _redirection(text, match, documents)
            tokens.append(redirection)
        if len(tokens) > MAX_WORDS:
            raise UnclearCommand("The command has too many words to be analysed.")
    if documents:
        raise UnclearCommand("The command contains a here-document that does not end.")
    return tokens


def _redirection(
    text: str, match: re.Match[str], documents: list[tuple[str, bool]]
) -> tuple[_Redirection, int]:
    """Return the redirection that an operator begins, and where it ends."""
    position = match.end()
    if match.lastgroup == "duplicate":
        return _Redirection(""), position
    if match.lastgroup == "document":
        document = _DOCUMENT.match(text, position) or _unclear(text, match.start())
        documents.append((document[document.lastindex or 0], document.lastindex != 3))
        return _Redirection(""), document.end()
    while text.startswith((" ", "\t"), position):
        position += 1
    target, position = _word(text, position)
    if target.form not in ("bare", "quoted") or not target.text:
        raise UnclearCommand("A file of a redirection is only known when the shell runs.")
    return _Redirection(match.lastgroup or "", target.text), position


def _skip_documents(text: str, position: int, documents: list[tuple[str, bool]]) -> int:
    """Return the position after the here-documents that begin at ``position``."""
    while documents:
        name, quoted = documents.pop(0)
        end = re.compile(f"^{name}$", re.M).search(text, position)
        if end is None:
            raise UnclearCommand("The command contains a here-document that does not end.")
        if not quoted and (special := re.search(r"[$`\\]", text[position : end.start()])):
            _unclear(text, position + special.start())
        if "\0" in text[position : end.start()]:
            _unclear("\0")
        position = min(end.end() + 1, len(text))
    return position


def _word(text: str, position: int) -> tuple[Word, int]:
    """Return the word at a position, and where it ends."""
    start = position
    pieces: list[str] = []
    forms = set[str]()
    while position < len(text) and text[position] not in _WORD_END:
        match = _PIECE.match(text, position)
        kind = (match.lastgroup or "") if match else ""
        if len(pieces) > _MAX_PIECES:
            raise UnclearCommand("The command has a word with too many quotes to be analysed.")
        if match is None or (kind == "variable" and match[kind] not in VARIABLES):
            _unclear(text, position)
        position = match.end()
        if kind == "double":
            position = _double(text, position, pieces, forms)
        elif kind in ("single", "escape"):
            pieces.append(_visible(match[kind]))
            forms.add("quoted")
        else:
            pieces.append(match[0])
            forms |= {kind} & {"glob", "variable"}
    word = "".join(pieces)
    number = not forms and word.isdigit() and text.startswith(("<", ">"), position)
    if position == start or number:  # to some shells, the number of a descriptor
        _unclear(text if position < len(text) else ">", position if position < len(text) else 0)
    if "glob" in forms and (len(forms) > 1 or "**" in word):
        raise UnclearCommand("The command contains a pattern of a form that is not analysed.")
    form = next((form for form in ("variable", "glob", "quoted") if form in forms), "bare")
    return Word(word, form), position


def _double(text: str, position: int, pieces: list[str], forms: set[str]) -> int:
    """Read the rest of a text in double quotes, and return where it ends."""
    forms.add("quoted")
    while True:
        match = _DOUBLE.match(text, position)
        assert match is not None  # it matches the empty text
        pieces.append(_DOUBLE_ESCAPE.sub(r"\1", _visible(match[0])))
        position = match.end()
        if text.startswith('"', position):
            return position + 1
        if position == len(text):
            _unclear('"')
        variable = _VARIABLE.match(text, position)
        if variable is None or variable[1] not in VARIABLES:
            _unclear(text, position)
        pieces.append(variable[0])
        forms.discard("quoted")
        forms.add("variable")
        position = variable.end()


def _visible(text: str) -> str:
    """Return a quoted text; raise if it has a character that people cannot see."""
    if _INVISIBLE.search(text) or not text.replace("\n", "").replace("\t", "").isprintable():
        raise UnclearCommand("The command contains a character that is not visible.")
    return text


class _Parser:
    """Reads tokens, from first to last."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.commands: list[SimpleCommand] = []
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _skip_newlines(self) -> None:
        while self._peek() == "\n":
            self._next += 1

    def _keyword(self) -> str:
        token = self._peek()
        return token.text if isinstance(token, Word) and token.form == "bare" else ""

    def sequence(self, ends: tuple[str, ...]) -> str:
        """Read a list of commands up to one of the keywords, and return the keyword."""
        empty = True
        while True:
            self._skip_newlines()
            keyword = self._keyword()
            if not empty and (keyword in ends or (not ends and self._peek() is None)):
                self._next += 1
                return keyword
            empty = False
            self._pipeline()
            while self._peek() in ("&&", "||"):
                self._next += 1
                self._skip_newlines()
                self._pipeline()
            token = self._peek()
            if token in (";", "\n"):
                self._next += 1
            elif token is not None:
                raise UnclearCommand("The command is not a valid list of commands.")

    def _pipeline(self) -> None:
        if self._keyword() == "if":
            self._if()
            return
        self._simple(piped=False)
        while self._peek() == "|":
            self._next += 1
            self._skip_newlines()
            self._simple(piped=True)

    def _if(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnclearCommand("The command is nested too deeply to be analysed.")
        keyword = "if"
        self._next += 1
        while keyword != "fi":
            keyword = self.sequence(_AFTER_IF[keyword])
        self._depth -= 1

    def _simple(self, *, piped: bool) -> None:
        words: list[Word] = []
        reads: list[str] = []
        writes: list[str] = []
        redirected = False
        while isinstance(token := self._peek(), Word | _Redirection):
            self._next += 1
            if isinstance(token, _Redirection):
                redirected = True
                if token.kind:
                    (reads if token.kind == "read" else writes).append(token.target)
            elif redirected:
                raise UnclearCommand("The command has words after a redirection.")
            else:
                words.append(token)
        if not words:
            raise UnclearCommand("The command is incomplete, or only redirects.")
        if words[0].form == "bare" and (words[0].text in _RESERVED or words[0].text == "if"):
            raise UnclearCommand(
                f"The command uses {words[0].text!r} in a form that is not analysed."
            )
        if _ASSIGNMENT.match(words[0].text):
            raise UnclearCommand("The command sets a variable, which can change what programs do.")
        self.commands.append(
            SimpleCommand(tuple(words), tuple(reads), tuple(writes), piped, redirected)
        )
