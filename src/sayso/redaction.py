"""Redact values that look like secrets, by field name or by shape, and render request titles.

The store and the digest keep the real value. A redacted view carries no digest, so it cannot be
approved; `reveal` shows the value and records who saw it. A field that the tool declares
secret (``writeOnly`` or ``format: password``) is always shown as a mask, and that counts as shown:
the tool's author declared that reviewers do not need to read it.

A value counts as a secret if one of these holds:

- its field has a name such as ``password``, or it is assigned to such a name in a text
  (``--password=x``, ``AccountKey=x``, ``Authorization: Bearer x``, ``{"pin": "1234"}``);
- it has the format of a well-known service's token. ``secret_formats.json`` holds the formats of
  gitleaks; ``scripts/secret_formats.py`` updates them.

A mask says how long the value is, and for long values also carries a fingerprint, so that two can
be told apart. The fingerprint is keyed with a secret of this process, so it cannot be computed for
a guess. Short values have none: a caller who can have guesses masked could compare the masks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from sayso import codec, text
from sayso.errors import InvalidCall
from sayso.policy.template import BadTemplate
from sayso.policy.template import parts as template_parts
from sayso.schema.validation import pattern_matches, schemas_in
from sayso.types import Json, Option, Question, Request

# -- masks

PLACEHOLDER = re.compile(r"•••• \([\d,]+ chars?(, [^()\n]{1,40})?\)")
_FINGERPRINT = re.compile(r"(?<=\d chars), fingerprint [0-9a-f]{8}(?=\))")


# -- names of secrets

_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secrets?|tokens?|api[_\- ]?keys?|"
    r"(?:private|access|secret|signing|encryption|account|shared|storage|master|auth|client|"
    r"service|subscription)[_\- ]?keys?|credentials?|authorization|bearer|cookies?|session_?id|"
    r"client_?secret|access_?signature|pin|otp)"
)
_SECRET_NAMES = re.compile(rf"(?i)(^|[_\-. ]){_NAMES}$")
#: Under these names, numbers of four digits or more are secrets too; smaller ones are counts.
_SECRET_NUMBER_NAMES = re.compile(r"(?i)(^|[_\-. ])(pass(word|wd|code)?|pwd|secret|pin|otp)$")
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAMES.search(_CAMEL_BOUNDARY.sub("_", name)))


# -- secrets within a text
#
# Every pattern captures the secret as its first group. An unanchored pattern needs an upper bound,
# or searching a long text takes quadratic time; `_spans` extends what was found to the end of the
# token.

_WORD = r"[^\s\"'`<>;,&|(){}\[\]\\]"
#: The end of a name like a secret's: PGPASSWORD, aws_secret_access_key, AccountKey.
_ASSIGNED = (
    r"(?i)(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|credentials?|authorization|"
    r"(?:api|access|account|secret|private|signing|encryption|shared|master|auth|client)[_\-]?key|"
    r"(?<![A-Za-z0-9])(?:sig|pin|otp))"
)
#: A variable, a placeholder, or an expression such as get_token(user) is no secret.
_NOT_CODE = r"(?![$<%{*./]|[A-Za-z_][\w.]{0,80}[(\[])"
_OWN_PATTERNS: tuple[tuple[tuple[str, ...], str], ...] = (
    # name=value, as in environments, connection strings, queries and options
    (("=",), _ASSIGNED + rf"""["']?=["']?{_NOT_CODE}({_WORD}{{4,1000}})"""),
    # name = value, "name": value and name: value; in a sentence a word may follow instead of a
    # secret, so this needs a digit
    (
        ("=", ":"),
        _ASSIGNED
        + r"""(?:\\?["'])?(?:[ ]{1,3}=|[ ]{0,3}:)[ ]{0,3}(?:\\?["'])?"""
        + rf"{_NOT_CODE}(?=[^\s\"',;]{{0,60}}[0-9])({_WORD}{{4,1000}})",
    ),
    # --password value
    (
        ("--",),
        r"(?i)(?<![\w-])--(?:[a-z]{1,20}-){0,3}"
        r"(?:password|passwd|passphrase|secret|token|api-?key|access-?key|secret-?key|pin|otp)"
        rf"""[ ]{{1,3}}["']?(?![-$<%{{*])({_WORD}{{3,1000}})""",
    ),
    (
        ("bearer", "basic", "token", "digest", "apikey"),
        r"(?i)\b(?:bearer|basic|token|apikey)[ ]{1,3}(?=[A-Za-z._~+/=\-]{0,60}[0-9])"
        r"([A-Za-z0-9._~+/=\-]{12,1000})",
    ),
    (("://",), r"://[^/\s:@]{0,200}:([^/\s:@]{3,200})@"),
    (("/api/webhooks/",), r"(discord(?:app)?\.com/api/webhooks/\d{5,25}/[\w\-]{20,100})"),
    (("sharedaccesssignature",), r"(?i)(SharedAccessSignature [^\s\"']{20,1000})"),
    # laxer than gitleaks, whose rules have to be quiet about examples in source files
    (("gh", "_"), r"\b(gh[pousr]_[A-Za-z0-9]{20,1000}|github_pat_[A-Za-z0-9_]{20,1000})"),
    (("sk-",), r"\b(sk-[A-Za-z0-9_\-]{20,1000})"),
    (("k_live_", "k_test_"), r"\b([sr]k_(?:live|test)_[A-Za-z0-9]{10,1000})"),
    (("akia", "asia"), r"\b((?:AKIA|ASIA)[0-9A-Z]{16})\b"),
    (("aiza",), r"\b(AIza[0-9A-Za-z_\-]{30,100})"),
    (("xox",), r"\b(xox[abeoprs]-[A-Za-z0-9\-]{10,1000})"),
    (("glpat-", "npm_", "hf_"), r"\b((?:glpat-|npm_|hf_)[A-Za-z0-9_\-]{20,1000})"),
    (
        ("eyj",),
        r"\b(eyJ[A-Za-z0-9_\-]{10,400}\.eyJ[A-Za-z0-9_\-]{10,1000}\.[A-Za-z0-9_\-]{10,1000})",
    ),
    (("sayso_",), r"\b(sayso_[A-Za-z0-9_\-]{40,100})"),
)
_TOKEN_TAIL = re.compile(r"[A-Za-z0-9_\-+/=~]*")
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----")
#: Words that follow a name like ``password=`` without being one.
_NOT_SECRETS = frozenset(("none", "null", "true", "false", "undefined", "required", "optional"))
_FLAG = re.compile(rf"(?i)--?(?:[a-z]{{1,20}}-){{0,3}}{_NAMES}")


#: No text shorter than this assigns a secret, and no key shorter than that is one.
_MIN_TEXT = 8
_MIN_KEY = 16


@cache
def _formats() -> dict[str, tuple[str, ...]]:
    """Return the patterns to search for in a text that contains a keyword, by keyword.

    Looking for all keywords first takes a fraction of the time of the patterns.
    """
    formats = json.loads(Path(__file__).with_name("secret_formats.json").read_text("utf-8"))
    patterns: dict[str, tuple[str, ...]] = {}
    for words, pattern in (
        *_OWN_PATTERNS,
        *((r["keywords"], r["regex"]) for r in formats.values()),
    ):
        for word in words:
            patterns[word] = (*patterns.get(word, ()), pattern)
    return patterns


_compile = cache(re.compile)


def _spans(value: str) -> list[tuple[int, int]]:
    """Return where the secrets in a text begin and end, in order and without overlaps."""
    lowered = value.lower()
    formats = _formats()
    patterns = {p: None for word in formats if word in lowered for p in formats[word]}
    spans = list(_key_blocks(value)) if "-----begin " in lowered else []
    for pattern in patterns:
        for match in _compile(pattern).finditer(value):
            group = 1 if match.re.groups and match[1] else 0
            if match[group].lower() not in _NOT_SECRETS:
                tail = _TOKEN_TAIL.match(value, match.end(group))
                assert tail is not None
                spans.append((match.start(group), tail.end()))
    return _joined(spans)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where spans begin and end, in order, with those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _key_blocks(value: str) -> Iterator[tuple[int, int]]:
    """Yield where private keys begin and end. One that was cut off takes the rest of the text."""
    place = 0
    while begin := _KEY_BLOCK.search(value, place):
        end = _KEY_END.search(value, begin.end())
        place = end.end() if end else len(value)
        yield begin.start(), place


# -- the masked values of a request

#: A shorter value hides the whole text: what is left around it could give it away.
_SHORTEST_REPLACED = 6
#: A text may quote the beginning of a value and cut the rest.
_QUOTED_START = 16
#: Comparisons of characters with values, after which a text is hidden unread.
_MOST_COMPARED = 100_000_000


class Span(NamedTuple):
    """Where a text contains a secret, whether the tool declares it, and if it hides the text."""

    start: int
    end: int
    declared: bool = False
    hides: bool = False


class Secrets:
    """The masked values of a request, to be masked in all other text about it."""

    def __init__(self, *others: Secrets) -> None:
        #: Each form in which a value may appear, in lower case, and whether it is declared.
        self.forms: dict[str, bool] = {}
        for other in others:
            self.forms |= other.forms

    def __bool__(self) -> bool:
        return bool(self.forms)

    def add(self, value: Json, *, declared: bool) -> None:
        """Add a value, and what a list or an object contains."""
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                self.add(item, declared=declared)
        elif isinstance(value, str) or _is_large_number(value):
            written = value if isinstance(value, str) else codec.dumps(value)
            for form in map(_lowered, _written_forms(written)):
                self.forms[form] = declared and self.forms.get(form, True)

    def spans(self, value: str) -> list[Span]:
        """Return where a text contains one of the values; all of it for a short one."""
        lowered = _lowered(value)
        matches: list[Span] = []
        if len(self.forms) * len(lowered) > _MOST_COMPARED:
            return [Span(0, len(value), hides=True)]
        for form, declared in self.forms.items():
            start = lowered.find(form[:_QUOTED_START])
            if start >= 0 and len(form) < _SHORTEST_REPLACED:
                matches.append(Span(0, len(value), declared, len(form) < len(value)))
                continue
            while start >= 0:
                pairs = zip(form, lowered[start:], strict=False)
                end = start + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
                matches.append(Span(start, end, declared))
                start = lowered.find(form[:_QUOTED_START], end)
        return matches


_NO_SECRETS = Secrets()


def _lowered(value: str) -> str:
    """Return a text in lower case, of the same length."""
    lowered = value.lower()
    if len(lowered) == len(value):
        return lowered
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in value)


def _written_forms(value: str) -> set[str]:
    """Return how a value may be written in a text: as it is, escaped, on one line, by lines."""
    lines = [line.strip() for line in value.splitlines()]
    forms = {
        value,
        " ".join(value.split()),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        quote(value, safe="", errors="replace"),
        *(line for line in lines if len(line) >= _QUOTED_START),
    }
    return forms - {""}


def _is_large_number(value: Json) -> bool:
    """Return whether a value is a number that could be a secret rather than a count."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) >= _LEAST_SECRET_NUMBER


_LEAST_SECRET_NUMBER = 1000


def _parse_json(value: str) -> Any:
    """Return the object or list that a text is the JSON of, or ``None``."""
    if value[:1] not in "{[ \n" or value.rstrip()[-1:] not in ("}", "]"):
        return None
    try:
        inner = json.loads(value, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        return None
    return inner if isinstance(inner, dict | list) else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a repeated name would hide a value")
    return unique


# -- values


class Redacted(NamedTuple):
    """A value with its secrets replaced, and whether anything undeclared was replaced."""

    value: Json
    masked: bool


class MaskedRequest(NamedTuple):
    """A request as people see it, whether anything undeclared is masked, and the masked values."""

    request: Request
    masked: bool
    secrets: Secrets


def redact(
    value: Json, schema: Mapping[str, Any] | None = None, secrets: Secrets = _NO_SECRETS
) -> Redacted:
    """Replace everything in a value that looks like a secret, is declared as one, or is known."""
    masker = _Masker(secrets)
    return Redacted(masker.value(value, schema), masker.masked)


def redact_declared(
    value: Mapping[str, Json],
    schema: Mapping[str, Any] | None,
    was: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """Replace only the arguments that their tool's schema declares secret.

    With ``was``, the arguments before an edit, masks of changed values say so.
    """
    first = _Masker(guess=False)
    redacted: dict[str, Json] = first.value(dict(value), schema)
    if first.found:
        redacted = _Masker(first.found, guess=False).value(dict(value), schema)
    return redacted if was is None else mark_changed(was, value, redacted)


def mask_request(request: Request, *, guess: bool = True) -> MaskedRequest:
    """Mask the secrets of a request wherever its texts repeat them.

    Ids, names and the keys of JSON stay as they are. Without ``guess``, only declared secrets are
    masked.
    """
    first = _Masker(guess=guess)
    masked = first.request(request)
    if not first.found:
        return MaskedRequest(masked, first.masked, first.found)
    second = _Masker(first.found, guess=guess)
    return MaskedRequest(second.request(request), second.masked, first.found)


def secrets_of(request: Request) -> Secrets:
    """Return the masked values of a request."""
    masker = _Masker()
    masker.request(request)
    return masker.found


#: A part of every name of a secret, and of every keyword that declares one.
_PART_OF_NAME = (
    "pass|pwd|secret|token|key|credential|authorization|bearer|cookie|session|access|pin|otp"
)
#: Takes long, and finds letters that are others in lower case, such as a long s.
_IN_ANY_CASE = re.compile(f"(?i){_PART_OF_NAME}")


@cache
def _shortest_keywords() -> list[str]:
    """Return the keywords of secrets that no text can hold without one of these."""
    parts = {"-----begin ", *_formats(), *_PART_OF_NAME.split("|")}
    return [word for word in parts if not any(part in word for part in parts - {word})]


def may_have_secrets(arguments: str, schema: str) -> bool:
    """Return whether arguments may hold a secret. Takes a fraction of the time of finding it."""
    if "writeOnly" in schema or "password" in schema:
        return True
    lowered = arguments.lower()
    if any(map(lowered.__contains__, _shortest_keywords())):
        return True
    return not lowered.isascii() and _IN_ANY_CASE.search(arguments) is not None


def secrets_in(*values: tuple[Json, Mapping[str, Any] | None]) -> Secrets:
    """Return the masked values of arguments, each given with its schema."""
    masker = _Masker()
    for value, schema in values:
        masker.value(value, schema)
    return masker.found


def find_placeholder(value: Json, path: str) -> str | None:
    """Return the path of the first redaction placeholder in a value, or ``None``.

    A call must not run with a placeholder in place of the secret.
    """
    if isinstance(value, str):
        return path if PLACEHOLDER.search(value) else None
    found_inside: list[tuple[Any, Json]] = []
    if isinstance(value, dict | list):
        found_inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    placeholders = (find_placeholder(item, f"{path}.{key}") for key, item in found_inside)
    return next((place for place in placeholders if place is not None), None)


class _Masker:
    """Masks values: those that are declared secret, those in ``known``, and those it guesses."""

    def __init__(self, known: Secrets = _NO_SECRETS, *, guess: bool = True) -> None:
        self._known = known
        self._guess = guess
        self._root: Any = {}
        #: Every value that was masked, and whether one of them was not declared.
        self.found = Secrets()
        self.masked = False

    def value(self, value: Json, schema: Mapping[str, Any] | None = None) -> Any:
        """Return a value with its secrets masked. ``$ref`` in the schema points into itself."""
        self._root = schema or {}
        return self._walk(value, "", [schema] if schema else [])

    def request(self, request: Request) -> Request:
        """Return a request with its secrets masked."""
        schema = request.schema
        args = self.value(dict(request.args), schema)
        if request.original is not None:
            args = mark_changed(request.original, request.args, args)
        execution = request.execution
        decision = request.decision
        evidence = request.evidence
        opinion = request.opinion
        answer_schema = None if request.question is None else schema
        if decision is not None:
            decision = replace(
                decision,
                args=self.value(decision.args, schema),
                value=self.value(decision.value, answer_schema),
                message=self.value(decision.message),
            )
        if evidence is not None:
            evidence = replace(evidence, text=self.value(evidence.text))
        if opinion is not None:
            opinion = replace(opinion, reason=self.value(opinion.reason))
        return replace(
            request,
            args=args,
            original=self.value(request.original, schema),
            written=self.value(request.written, schema),
            preview=self.value(request.preview, schema),
            title=self.value(request.title),
            description=self.value(request.description),
            note=self.value(request.note),
            schema=None if schema is None else self.schema(schema),
            question=None if request.question is None else self._question(request.question),
            risk=replace(request.risk, reasons=tuple(self.value(list(request.risk.reasons)))),
            effect_key=self.value(request.effect_key),
            binds=self.value(request.binds),
            execution=replace(execution, result=self.value(execution.result, answer_schema)),
            decision=decision,
            evidence=evidence,
            opinion=opinion,
            refusals=tuple(
                replace(earlier, message=self.value(earlier.message))
                for earlier in request.refusals
            ),
        )

    def _question(self, question: Question) -> Question:
        masked = copy(question)  # two masked options may be equal, which a new question refuses
        options = tuple(
            Option(self.value(o.label), self.value(o.value), self.value(o.description))
            for o in question.options
        )
        object.__setattr__(masked, "text", self.value(question.text))
        object.__setattr__(masked, "options", options)
        if question.schema is not None:
            object.__setattr__(masked, "schema", self.schema(question.schema))
        return masked

    def schema(self, node: Any, *, secret: bool = False) -> Any:
        """Return a JSON Schema with the values masked that it gives for secret fields."""
        if isinstance(node, list):
            return [self.schema(item, secret=secret) for item in node]
        if not isinstance(node, Mapping):
            return node
        declared = _is_declared(node)
        masked: dict[str, Any] = {}
        for key, item in node.items():
            if key in _SCHEMA_VALUES and (declared or (secret and self._guess)):
                masked[key] = self._mask_all(item, declared=declared)
            elif key in _SCHEMA_VALUES or key in _SCHEMA_TEXTS:
                masked[key] = self.value(item)
            elif key in _SCHEMA_FIELDS and isinstance(item, Mapping):
                masked[key] = {
                    name: self.schema(field, secret=secret or _is_secret_name(name))
                    for name, field in item.items()
                }
            else:
                masked[key] = self.schema(item, secret=secret)
        return masked

    def _mask_all(self, value: Json, *, declared: bool) -> Json:
        """Mask each value that a schema gives for a secret field."""
        if isinstance(value, list):
            return [self._mask_all(item, declared=declared) for item in value]
        if value is None or value == "" or isinstance(value, bool):
            return value
        return self._mask(value, declared=declared)

    def _mask(self, value: Json, *, declared: bool) -> str:
        self.masked = self.masked or not declared
        return text.fingerprint(value if isinstance(value, str) else codec.dumps(value))

    def _walk(self, value: Json, name: str, schemas: list[Any]) -> Json:
        subschemas = list(_subschemas(schemas, self._root)) if schemas else []
        if any(map(_is_declared, subschemas)):
            if value is None or value == "":
                return value
            self.found.add(value, declared=True)
            return self._mask(value, declared=True)
        looks_secret = self._guess and _is_secret_name(name)
        if isinstance(value, dict):
            # A secret-looking name covers everything nested below it.
            sibling_name = _name_beside(value) if self._guess else ""
            return {
                self._key(k): self._walk(
                    v,
                    name if looks_secret else sibling_name if k == "value" and sibling_name else k,
                    _fields(subschemas, k),
                )
                for k, v in value.items()
            }
        if isinstance(value, list):
            names = _names_in_list(value, name) if self._guess else [name] * len(value)
            items = enumerate(value)
            return [self._walk(item, names[n], _items(subschemas, n)) for n, item in items]
        return self._scalar(value, name, looks_secret=looks_secret)

    def _key(self, key: str) -> str:
        """Return a key of JSON, which is masked only if it looks like a secret itself."""
        if not self._guess or len(key) < _MIN_KEY:
            return key
        return self._replace(key, [Span(*span) for span in _spans(key)])

    def _scalar(self, value: Json, name: str, *, looks_secret: bool) -> Json:
        """Mask a text or a number if it is a secret; otherwise mask the secrets in a text."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            secret_name = _SECRET_NUMBER_NAMES.search(_CAMEL_BOUNDARY.sub("_", name))
            if self._guess and _is_large_number(value) and secret_name:
                self.found.add(value, declared=False)
                return self._mask(value, declared=False)
            declared = self._known.forms.get(codec.dumps(value))
            return value if declared is None else self._mask(value, declared=declared)
        if not isinstance(value, str) or not value:
            return value
        if looks_secret:
            self.found.add(value, declared=False)
            return self._mask(value, declared=False)
        return self._text(value)

    def _text(self, value: str) -> str:
        """Return a text with its secrets masked. Text that is JSON is read like any other value."""
        guess = self._guess and len(value) >= _MIN_TEXT
        inner = _parse_json(value) if guess else None
        if inner is not None:
            masked = self._walk(inner, "", [])
            if masked != inner:
                return json.dumps(masked, ensure_ascii=False)
        spans = [Span(*span) for span in _spans(value)] if guess else []
        for span in spans:
            self.found.add(value[span.start : span.end], declared=False)
        return self._replace(value, [*spans, *self._known.spans(value)])

    def _replace(self, value: str, spans: list[Span]) -> str:
        """Return a text with these parts masked; a part of another is masked with it."""
        pieces: list[str] = []
        place = 0
        self.masked = self.masked or not all(span.declared for span in spans)
        if any(span.hides for span in spans):
            return text.mask(value)
        for start, end in _joined([(span.start, span.end) for span in spans]):
            pieces += [value[place:start], text.fingerprint(value[start:end])]
            place = end
        return "".join((*pieces, value[place:]))


#: Keywords of JSON Schema that hold values of a field, that hold text, and that hold fields.
_SCHEMA_VALUES = frozenset(("default", "const", "enum", "examples", "example"))
_SCHEMA_TEXTS = frozenset(("title", "description", "$comment", "pattern"))
_SCHEMA_FIELDS = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
)


def _is_declared(schema: Mapping[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def _name_beside(value: Mapping[str, Json]) -> str:
    """Return the name that an object gives its value, as in {"name": "Cookie", "value": ...}."""
    name = value.get("name", value.get("key"))
    return name if isinstance(name, str) and _is_secret_name(name) else ""


def _names_in_list(value: list[Json], name: str) -> list[str]:
    """Return the name of each item: the list's own, or the option before the item."""
    before = ["", *(item if isinstance(item, str) else "" for item in value[:-1])]
    return [
        flag.lstrip("-") if flag.startswith("-") and _FLAG.fullmatch(flag) else name
        for flag in before
    ]


def without_fingerprints(shown: Json) -> Any:
    """Return a redacted value whose masks cannot be compared with those of other values."""
    if isinstance(shown, dict):
        return {key: without_fingerprints(item) for key, item in shown.items()}
    if isinstance(shown, list):
        return [without_fingerprints(item) for item in shown]
    return _FINGERPRINT.sub("", shown) if isinstance(shown, str) else shown


def mark_changed(before: Json, after: Json, shown: Json) -> Json:
    """Return ``shown``, the redacted ``after``, with a note in masks of values that changed.

    Short values that differ have the same mask, and a change must not go unseen.
    """
    if isinstance(shown, dict) and isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = dict(zip(shown, after, strict=True))  # a name may be masked, too
        return {
            k: mark_changed(before.get(keys[k]), after[keys[k]], item) for k, item in shown.items()
        }
    if isinstance(shown, list) and isinstance(before, list) and isinstance(after, list):
        olds = [*before, *[None] * len(after)]
        return [mark_changed(*each) for each in zip(olds, after, shown, strict=False)]
    masked = isinstance(shown, str) and shown != after and PLACEHOLDER.search(shown)
    if not masked or before == after:
        return shown
    return PLACEHOLDER.sub(lambda found: f"{found[0][:-1]}, changed)", shown)


def _subschemas(schemas: list[Any], root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every subschema that applies to one value, following references and alternatives."""
    todo = list(schemas)
    known_ids = set()
    while todo:
        node = todo.pop()
        if not isinstance(node, Mapping) or id(node) in known_ids:
            continue
        known_ids.add(id(node))
        yield node
        todo += [resolve_ref(root, node.get(keyword)) for keyword in ("$ref", "$dynamicRef")]
        todo += [node.get(keyword) for keyword in ("then", "else")]
        for keyword in ("anyOf", "oneOf", "allOf"):
            todo += node.get(keyword) or ()
        todo += (node.get("dependentSchemas") or {}).values()


def resolve_ref(root: Any, ref: object) -> Any:
    """Return the subschema that a local ``$ref`` points to, or ``None``."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    path = unquote(ref[1:])
    if path and not path.startswith("/"):
        anchors = ("$anchor", "$dynamicAnchor")
        named = (each for each in schemas_in(root) if path in map(each.get, anchors))
        return next(named, None)
    node = root
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(name)] if name.isdecimal() and int(name) < len(node) else None
        else:
            node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _fields(subschemas: list[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the schemas of a property; ``additionalProperties`` covers the unnamed ones."""
    fields: list[Any] = []
    for subschema in subschemas:
        properties = subschema.get("properties") or {}
        patterns = subschema.get("patternProperties") or {}
        named = [patterns[pattern] for pattern in patterns if pattern_matches(pattern, name)]
        named += [properties[name]] if name in properties else []
        fields += named or [subschema.get("additionalProperties")]
    return fields if any(fields) else [each.get("unevaluatedProperties") for each in subschemas]


def _items(subschemas: list[Mapping[str, Any]], place: int) -> list[Any]:
    items: list[Any] = []
    for subschema in subschemas:
        first = subschema.get("prefixItems") or ()
        items.append(first[place] if place < len(first) else subschema.get("items"))
        items.append(subschema.get("contains"))
    return items if any(items) else [each.get("unevaluatedItems") for each in subschemas]


# -- titles

MAX_TITLE = 300


def title_fields(template: str) -> tuple[str, ...]:
    """Return the argument names that a title template uses. Raise ``InvalidCall`` if it is invalid.

    Templates take plain argument names: no attributes, items or formats. ``{{`` is a literal brace.
    """
    try:
        return template_parts(template)[1]
    except BadTemplate as error:
        raise InvalidCall(f"title: {error}", "title") from None


def render_title(template: str, args: Mapping[str, Json], schema: Mapping[str, Any] | None) -> str:
    """Render a title template: inert, on one line, with secrets redacted.

    Returns "" if the template does not fit the arguments, as after a change of the tool.
    """
    try:
        literals, names = template_parts(template)
        values = [_as_text(args[name]) for name in names]
        redacted_args = redact(dict(args), schema).value
        hidden = {name for name in names if redacted_args[name] != args[name]}
    except (BadTemplate, KeyError):
        return ""
    values = ["••••" if name in hidden else v for name, v in zip(names, values, strict=True)]
    pairs = zip(literals, [*values, ""], strict=True)
    return redacted_title("".join(literal + value for literal, value in pairs), args, schema)


def redacted_title(given: str, args: Mapping[str, Json], schema: Mapping[str, Any] | None) -> str:
    """Return the title of a call: inert, on one line, without the secrets of its arguments.

    The masks are the same in every process, because the title is compared before the start.
    """
    redacted: str = redact(given, None, secrets_in((dict(args), schema))).value
    return clean_title(PLACEHOLDER.sub("••••", redacted))


def clean_title(given: str) -> str:
    """Return a text as a title: inert, on one line, and cut to ``MAX_TITLE`` characters."""
    title = text.inline(" ".join(given.split()))
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1] + "…"


def title_of(request: Request) -> str:
    """Return a request's title, or one made from its tool and arguments; secrets are masked.

    ``getWeatherInformation(city="Oslo")`` becomes "Get weather information: Oslo".
    """
    return masked_title(request, mask_request(request).request)


def masked_title(request: Request, masked: Request) -> str:
    """Return the title of a request that was masked (``mask_request``)."""
    if masked.title:  # clean already; to escape its escapes again would misstate it
        return _UNESCAPED.sub(lambda part: text.inline(part[0]), masked.title)
    if masked.question is not None:
        return clean_title(masked.question.text)
    if masked.tool is None:
        return clean_title(str(masked.args.get("text", "")))
    parts = []
    size = 0
    for name, value in masked.args.items():
        part = _short_argument(name, value) if value == request.args.get(name) else "••••"
        if part and size + len(part) <= _BRIEF_TITLE:
            parts.append(part)
            size += len(part)
        if len(parts) == _BRIEF_PARTS:
            break
    words = re.split(r"[\W_]+", _CAMEL_WORD.sub(" ", masked.tool))
    name = " ".join(word if word.isupper() else word.lower() for word in words if word)
    title = name[:1].upper() + name[1:] or masked.tool
    return clean_title(f"{title}: {', '.join(parts)}" if parts else title)


_UNESCAPED = re.compile("[^⟨⟩]+")
#: Where a word of a name in camel case begins.
_CAMEL_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: Limits of a title that is made here: characters of all arguments, arguments, and of each one.
_BRIEF_TITLE = 90
_BRIEF_PARTS = 3
_BRIEF_TEXT = 48


def _short_argument(name: str, value: Json) -> str:
    """Return a short text for one argument, or "" if there is none."""
    if isinstance(value, bool) or value is None or isinstance(value, dict):
        return name if value is True else ""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], str):
            return _short_argument(name, value[0])
        return f"{len(value):,} {name}" if value else ""
    line = _as_text(value).strip()
    if "\n" in line:
        return ""
    return line if len(line) <= _BRIEF_TEXT else f"{line[:_BRIEF_TEXT]}…"


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else codec.dumps(value)
