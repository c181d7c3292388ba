"""Approving with other arguments: edit, check, show what changed, and ask again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sayso import codec, text
from sayso.channels.card import diff
from sayso.channels.editor import NoEditor, as_json, edited, parsed
from sayso.channels.layout import Line
from sayso.errors import InvalidCall
from sayso.hiding import declared
from sayso.types import Edit, Json

if TYPE_CHECKING:
    from sayso.channels.talk import Outcome, Talk


def edit(talk: Talk) -> Outcome | None:
    """Open the editor until the arguments fit and the person says yes, or goes back."""
    if talk.request.tool is None:
        talk.say("Only a tool call can be edited: reject it and say why.")
        return None
    content: str | None = as_json(dict(talk.request.args))
    while content is not None:
        try:
            written = edited(content)
        except NoEditor as error:
            talk.say(f"{text.inline(str(error))}. Nothing was decided.")
            return None
        outcome, content = _consider(talk, written)
        if outcome is not None:
            return outcome
    return None


def _consider(talk: Talk, written: str) -> tuple[Outcome | None, str | None]:
    """An outcome, or what to edit again, or neither when the person goes back."""
    if not written.strip():
        talk.say("The file is empty: nothing was changed.")
        return None, None
    try:
        args = _arguments(talk, written)
    except InvalidCall as error:
        talk.say(f"That does not fit: {text.inline(str(error))}")
        again = talk.choose("[e]dit again, [b]ack >", ("e", "b")) == "e"
        return None, written if again else None
    if args is None:
        talk.say("Nothing was changed, so there is no edit. To approve it as it is, type a.")
        return None, None
    return _put(talk, args, written)


def _arguments(talk: Talk, written: str) -> dict[str, Json] | None:
    value = parsed(written, talk.request.schema)
    if not isinstance(value, dict):
        raise InvalidCall("the arguments are one JSON object")
    same = codec.canonical(value) == codec.canonical(dict(talk.request.args))
    return None if same else value


def _put(talk: Talk, args: dict[str, Json], written: str) -> tuple[Outcome | None, str | None]:
    schema = talk.request.schema
    before, after = declared(talk.request.args, schema), declared(args, schema)
    lines = [Line("What you changed", "bold"), *diff(before, after)]
    unseen = "" if talk.show(lines) else "you did not see all of your changes"
    key = talk.choose("[a]pprove with these changes, [e]dit again, [b]ack >", ("a", "e", "b"))
    if key == "e":
        return None, written
    if key == "a" and talk.confirmed(unseen=unseen):
        request = talk.request
        decision = Edit(args, request=request.id, seen_digest=request.digest)
        return talk.decide(decision), None
    return None, None
