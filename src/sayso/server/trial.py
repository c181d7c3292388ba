"""Trying an edit out in front of the person: valid or not, what changes, which rule it meets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso import codec, schema, text
from sayso.errors import InvalidCall
from sayso.policy import tightened
from sayso.server.service import Service
from sayso.server.showing.shown import seen
from sayso.types import Json, Request, Reviewer


def tried(
    service: Service, request: Request, args: Mapping[str, Any], by: Reviewer
) -> dict[str, Json]:
    """What would come of these arguments; nothing is written, and no secret is shown unasked."""
    call = service.store.call(request.id)
    assert call is not None
    wrong: list[dict[str, Json]] = []
    if request.tool is None or request.schema is None:
        wrong.append({"field": "args", "message": "only a tool call can be edited"})
    else:
        try:
            whole = codec.loads(codec.canonical(dict(args)))
            found = schema.errors(request.schema, whole)
            wrong += [{"field": path, "message": message} for path, message in found]
        except InvalidCall as error:
            wrong.append({"field": error.path, "message": str(error)})
    before, after = seen(request, request.args, by), seen(request, args, by)
    body: dict[str, Json] = {
        "ok": not wrong,
        "errors": wrong,
        "shown": {"before": text.lines(before), "after": text.lines(after)},
        "diff": changed(before, after),
    }
    if not wrong and service.inbox.judge is not None:
        terms = tightened(call.terms, service.inbox.judge(call, args))
        body |= {
            "verdict": str(terms.verdict),
            "risk": {"level": terms.risk.level, "reasons": list(terms.risk.reasons)},
            "quorum": terms.quorum,
            "rule": text.inline(terms.rule),
        }
    return body


def changed(before: Json, after: Json, path: str = "") -> list[dict[str, Json]]:
    """What differs, place by place; objects are compared key by key, the rest as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            entry
            for key in keys
            for entry in changed(
                before.get(key, _NOTHING),
                after.get(key, _NOTHING),
                f"{path}.{text.inline(key)}" if path else text.inline(key),
            )
        ]
    if _same(before, after):
        return []
    return [{"path": path, "before": _words(before), "after": _words(after)}]


class _Nothing:
    pass


_NOTHING = _Nothing()


def _same(before: Json, after: Json) -> bool:
    """1, 1.0 and True are three values in JSON."""
    if isinstance(before, _Nothing) or isinstance(after, _Nothing):
        return before is after
    return codec.dumps(before) == codec.dumps(after)


def _words(value: Json) -> str | None:
    return None if isinstance(value, _Nothing) else "\n".join(text.lines(value))
