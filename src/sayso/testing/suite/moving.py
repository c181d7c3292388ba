"""Run every command on a call in every status, and compare with the table of moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sayso.engine.commands import Park, Reask, Reopen, Wake
from sayso.errors import SaysoError
from sayso.rows import Call, CallStatus
from sayso.testing.world import World, content

_S = CallStatus

#: The new status after each command, by old status. In any other status the call is unchanged.
MOVED_BY: dict[str, dict[CallStatus, CallStatus]] = {
    "approve": {_S.ASKED: _S.READY, _S.IN_DOUBT: _S.READY},
    "edit": {_S.ASKED: _S.READY},
    "reject": {_S.ASKED: _S.REJECTED, _S.IN_DOUBT: _S.FAILED},
    "respond": {_S.ASKED: _S.RESPONDED, _S.IN_DOUBT: _S.DONE},
    "reask": {_S.READY: _S.ASKED},
    "start": {_S.READY: _S.RUNNING},
    "release": {_S.READY: _S.RELEASED},
    "complete": {_S.READY: _S.DONE},
    "record": {_S.RUNNING: _S.DONE, _S.IN_DOUBT: _S.DONE},
    "fail": {_S.RUNNING: _S.FAILED, _S.IN_DOUBT: _S.FAILED},
    "suspend": {_S.RUNNING: _S.READY},
    "mark_in_doubt": {_S.RUNNING: _S.IN_DOUBT},
    "settle": {_S.IN_DOUBT: _S.DONE},
    "release_lapsed": {_S.RUNNING: _S.IN_DOUBT},
    "claim": {_S.RUNNING: _S.IN_DOUBT},
    "recover": {_S.READY: _S.IN_DOUBT, _S.RUNNING: _S.IN_DOUBT},
    "expire": {_S.ASKED: _S.EXPIRED},
    "cancel": {_S.ASKED: _S.CANCELLED, _S.READY: _S.CANCELLED},
    "cancel_run": {_S.ASKED: _S.CANCELLED, _S.READY: _S.CANCELLED},
    "supersede": {_S.ASKED: _S.SUPERSEDED, _S.READY: _S.SUPERSEDED},
    "supersede_run": {_S.ASKED: _S.SUPERSEDED, _S.READY: _S.SUPERSEDED},
    "finish": {},
    "park": {},
    "reopen": {},
    "renew": {},
    "wake": {},
    "propose": {},
    "defer": {},
    "report": {},
}


class Moving:
    """The table of moves, tested through the store."""

    @pytest.mark.parametrize("command", sorted(MOVED_BY))
    def test_what_moves_and_what_stays(self, world: World, command: str) -> None:
        for status in CallStatus:
            place = {"run": f"r-{status}", "thread": f"t-{status}"}
            call = world.in_state(status, **place)
            if command in ("expire", "release_lapsed", "claim", "settle"):
                world.clock.advance(100)
            changed = True
            try:
                _act(world, command, call)
            except SaysoError:
                changed = False
            wanted = MOVED_BY[command].get(status, status)
            now = world.call(call)
            assert now.status is wanted, f"{command} on {status}"
            assert changed or now == call
            world.check()

    def test_what_has_ended_has_ended(self, world: World) -> None:
        """No sequence of commands reopens a closed call."""
        closed = [status for status in CallStatus if not _leaves(status)]
        for status in closed:
            place = {"run": f"r-{status}", "thread": f"t-{status}"}
            call = world.in_state(status, **place)
            for command in MOVED_BY:
                if (status, command) == (_S.RELEASED, "report"):
                    continue  # its result may arrive later
                try:
                    _act(world, command, call)
                except SaysoError:
                    continue
            assert content(world.call(call)) == content(call)


def _leaves(status: CallStatus) -> bool:
    return any(status in moves for moves in MOVED_BY.values())


def _act(world: World, command: str, call: Call) -> object:
    place: dict[str, Any] = {"run": call.run, "thread": call.thread}
    answers: dict[str, Any] = {"edit": {"args": {"to": "cy"}}, "respond": {"value": 2}}
    acts: dict[str, Callable[[], object]] = {
        "reask": lambda: world.transact(Reask(**place, call=call.id, reason="again")),
        "start": lambda: world.start(call),
        "release": lambda: world.release(call),
        "defer": lambda: world.defer(call, call.caller),
        "report": lambda: world.report(call),
        "complete": lambda: world.complete(call),
        "record": lambda: world.record(call, result="2"),
        "fail": lambda: world.record(call, ok=False, result="boom"),
        "suspend": lambda: world.suspend(call),
        "mark_in_doubt": lambda: world.doubt(call),
        "settle": lambda: world.settle(call, "ran", result="2"),
        "release_lapsed": lambda: world.sweep(**place),
        "claim": lambda: world.claim("w2", **place),
        "recover": lambda: world.recover(**place),
        "expire": lambda: world.expire(call),
        "cancel": lambda: world.cancel(call),
        "cancel_run": lambda: world.cancel(**place),
        "supersede": lambda: world.cancel(call, superseded=True),
        "supersede_run": lambda: world.cancel(**place, superseded=True),
        "finish": lambda: world.finish(**place),
        "park": lambda: world.transact(Park(**place, token=world.run(call.run).token)),
        "reopen": lambda: world.transact(Reopen(**place)),
        "renew": lambda: world.renew(call.token, **place),
        "wake": lambda: world.transact(Wake(**place)),
        "propose": lambda: world.ask(key=call.key, **place),
    }
    if command in acts:
        return acts[command]()
    return world.decide(call, command, "bo", **answers.get(command, {}))
