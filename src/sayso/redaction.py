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
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sayso import codec, text
from sayso.errors import InvalidCall
from sayso.policy.template import BadTemplate
from sayso.policy.template import parts as template_parts
from sayso.types import Json, Request

# -- masks

_PLACEHOLDER = re.compile(r"•••• \([\d,]+ chars?(, [^()\n]{1,40})?\)")


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
_MIN_TEXT, _MIN_KEY = 8, 16


@cache
def _formats() -> dict[str, tuple[str, ...]]:
    """Return the patterns to search for in a text that contains a keyword, by keyword.

    Looking for all keywords first takes a fraction of the time of the patterns.
    """
    known = json.loads(Path(__file__).with_name("secret_formats.json").read_text("utf-8"))
    found: dict[str, tuple[str, ...]] = {}
    for words, pattern in (*_OWN_PATTERNS, *((r["keywords"], r["regex"]) for r in known.values())):
        for word in words:
            found[word] = (*found.get(word, ()), pattern)
    return found


_compile = cache(re.compile)


def _spans(value: str) -> list[tuple[int, int]]:
    """Return where the secrets in a text begin and end, in order and without overlaps."""
    lowered, formats = value.lower(), _formats()
    patterns = {p: None for word in formats if word in lowered for p in formats[word]}
    found = list(_key_blocks(value)) if "-----begin " in lowered else []
    for pattern in patterns:
        for match in _compile(pattern).finditer(value):
            group = 1 if match.re.groups and match[1] else 0
            if match[group].lower() not in _NOT_SECRETS:
                tail = _TOKEN_TAIL.match(value, match.end(group))
                assert tail is not None
                found.append((match.start(group), tail.end()))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
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


def _redact_text(value: str, found: list[bool]) -> str:
    """Return a text with its secrets masked. Text that is JSON is read like any other value."""
    if len(value) < _MIN_TEXT:
        return value
    inner = _parse_json(value)
    if inner is not None:
        found_inside: list[bool] = []
        shown = _walk(inner, "", [], {}, found_inside)
        if any(found_inside):
            found.append(True)
            return json.dumps(shown, ensure_ascii=False)
    spans = _spans(value)
    if not spans:
        return value
    found.append(True)
    pieces, place = [], 0
    for start, end in spans:
        pieces += [value[place:start], text.fingerprint(value[start:end])]
        place = end
    return "".join((*pieces, value[place:]))


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


def redact(value: Json, schema: Mapping[str, Any] | None = None) -> Redacted:
    """Replace everything in a value that looks like a secret or is declared as one."""
    found: list[bool] = []
    root = schema or {}
    shown = _walk(value, "", [root] if root else [], root, found)
    return Redacted(shown, any(found))


def redact_declared(
    value: Mapping[str, Json],
    schema: Mapping[str, Any] | None,
    was: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """Replace only the arguments that their tool's schema declares secret.

    With ``was``, the arguments before an edit, masks of changed values say so.
    """
    root = schema or {}
    shown: dict[str, Json] = _walk(dict(value), "", [root] if root else [], root, None)
    return shown if was is None else mark_changed(was, value, shown)


def find_placeholder(value: Json, path: str) -> str | None:
    """Return the path of the first redaction placeholder in a value, or ``None``.

    A call must not run with a placeholder in place of the secret.
    """
    if isinstance(value, str):
        return path if _PLACEHOLDER.search(value) else None
    found_inside: list[tuple[Any, Json]] = []
    if isinstance(value, dict | list):
        found_inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = (find_placeholder(item, f"{path}.{key}") for key, item in found_inside)
    return next((place for place in found if place is not None), None)


def _walk(value: Json, name: str, schemas: list[Any], root: Any, found: list[bool] | None) -> Json:
    """Redact one value. ``$ref`` in its ``schemas`` points into ``root``.

    Appends to ``found`` for each guessed secret. If it is ``None``, replaces declared ones only.
    """
    subschemas = list(_subschemas(schemas, root)) if schemas else []
    if any(s.get("writeOnly") is True or s.get("format") == "password" for s in subschemas):
        if value is None or value == "":
            return value
        return text.fingerprint(value if isinstance(value, str) else codec.dumps(value))
    looks_secret = found is not None and _is_secret_name(name)
    if isinstance(value, dict):
        # A secret-looking name covers everything nested below it.
        named = _name_beside(value) if found is not None else ""
        return {
            k if found is None or len(k) < _MIN_KEY else _redact_text(k, found): _walk(
                v,
                name if looks_secret else named if k == "value" and named else k,
                _fields(subschemas, k),
                root,
                found,
            )
            for k, v in value.items()
        }
    if isinstance(value, list):
        names = [name] * len(value) if found is None else _names_in_list(value, name)
        return [_walk(v, names[n], _items(subschemas, n), root, found) for n, v in enumerate(value)]
    return value if found is None else _redact_scalar(value, name, looks_secret, found)


def _redact_scalar(value: Json, name: str, looks_secret: bool, found: list[bool]) -> Json:
    """Replace a string or number if it looks like a secret."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) < 1000 or not _SECRET_NUMBER_NAMES.search(_CAMEL_BOUNDARY.sub("_", name)):
            return value
        found.append(True)
        return text.fingerprint(codec.dumps(value))
    if not isinstance(value, str) or not value:
        return value
    if looks_secret:
        found.append(True)
        return text.fingerprint(value)
    return _redact_text(value, found)


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
    masked = isinstance(shown, str) and shown != after and _PLACEHOLDER.search(shown)
    if not masked or before == after:
        return shown
    return _PLACEHOLDER.sub(lambda found: f"{found[0][:-1]}, changed)", shown)


def _subschemas(schemas: list[Any], root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every subschema that applies to one value, following references and alternatives."""
    todo, seen = list(schemas), set()
    while todo:
        node = todo.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        todo.append(resolve_ref(root, node.get("$ref")))
        for keyword in ("anyOf", "oneOf", "allOf"):
            todo += node.get(keyword) or ()


def resolve_ref(root: Any, ref: object) -> Any:
    """Return the subschema that a local ``$ref`` points to, or ``None``."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    node = root
    for part in ref[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _fields(subschemas: list[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the schemas of a property; ``additionalProperties`` covers the unnamed ones."""
    found = []
    for subschema in subschemas:
        named = subschema.get("properties")
        rest = subschema.get("additionalProperties")
        found.append(named.get(name, rest) if isinstance(named, Mapping) else rest)
    return found


def _items(subschemas: list[Mapping[str, Any]], place: int) -> list[Any]:
    found: list[Any] = []
    for subschema in subschemas:
        first = subschema.get("prefixItems") or ()
        found.append(first[place] if place < len(first) else subschema.get("items"))
    return found


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
        shown = redact(dict(args), schema).value
        assert isinstance(shown, dict)
        values = [_as_text(args[name]) if shown[name] == args[name] else "••••" for name in names]
    except (BadTemplate, KeyError):
        return ""
    pairs = zip(literals, [*values, ""], strict=True)
    return clean_title("".join(literal + value for literal, value in pairs))


def clean_title(given: str) -> str:
    """Return a text as a title: inert, on one line, and cut to ``MAX_TITLE`` characters."""
    shown = text.inline(" ".join(given.split()))
    return shown if len(shown) <= MAX_TITLE else shown[: MAX_TITLE - 1] + "…"


def title_of(request: Request) -> str:
    """Return a request's title, or one made from its tool and arguments.

    ``getWeatherInformation(city="Oslo")`` becomes "Get weather information: Oslo".
    """
    if request.title:
        return clean_title(str(redact(request.title).value))
    if request.question is not None:
        return clean_title(str(redact(request.question.text).value))
    shown = redact(dict(request.args), request.schema).value
    assert isinstance(shown, dict)
    if request.tool is None:
        return clean_title(str(shown.get("text", "")))
    parts, size = [], 0
    for name, value in shown.items():
        part = _short_argument(name, value) if value == request.args[name] else "••••"
        if part and size + len(part) <= _BRIEF_TITLE:
            parts.append(part)
            size += len(part)
        if len(parts) == _BRIEF_PARTS:
            break
    words = re.split(r"[\W_]+", _CAMEL_WORD.sub(" ", request.tool))
    name = " ".join(word if word.isupper() else word.lower() for word in words if word)
    title = name[:1].upper() + name[1:] or request.tool
    return clean_title(f"{title}: {', '.join(parts)}" if parts else title)


#: Where a word of a name in camel case begins.
_CAMEL_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: Limits of a title that is made here: characters of all arguments, arguments, and of each one.
_BRIEF_TITLE, _BRIEF_PARTS, _BRIEF_TEXT = 90, 3, 48


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
