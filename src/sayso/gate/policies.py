"""The policy in force: given as an object, or kept in a file that may change."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, cast

from sayso.engine.commands import Note
from sayso.errors import InvalidPolicy
from sayso.policy import Judging, Policy, Predicate
from sayso.stores.base import Store
from sayso.sync import call_in_new_thread, to_thread
from sayso.types import Terms

PREDICATE_SECONDS = 5.0


async def judge(judging: Judging, timeout: float = PREDICATE_SECONDS) -> Terms:
    """The terms that a policy comes to; it is told of a predicate that raises or hangs."""
    try:
        predicate, args = next(judging)
        while True:
            said = await to_thread(_said, predicate, args, timeout)
            predicate, args = judging.send(said)
    except StopIteration as stop:
        return cast(Terms, stop.value)


def judge_sync(judging: Judging, timeout: float = PREDICATE_SECONDS) -> Terms:
    """The same for callers that have left the event loop already."""
    try:
        predicate, args = next(judging)
        while True:
            predicate, args = judging.send(_said(predicate, args, timeout))
    except StopIteration as stop:
        return cast(Terms, stop.value)


def _said(predicate: Predicate, args: dict[str, Any], timeout: float) -> object:
    try:
        return call_in_new_thread(partial(_evaluate, predicate, args), timeout)
    except Exception as error:
        return error


def _evaluate(predicate: Predicate, args: dict[str, Any]) -> bool:
    answer = predicate(args)
    if inspect.isawaitable(answer):
        return asyncio.run(_awaited(answer))
    return answer


async def _awaited(answer: Awaitable[bool]) -> bool:
    return await answer


log = logging.getLogger("sayso.gate")


class PolicyInForce:
    """Reads a policy file again when it changes; a bad file keeps the old policy."""

    def __init__(self, policy: Policy | str | Path | None, store: Store) -> None:
        self._store = store
        self._path: Path | None = None
        self._stamp: tuple[int, int] | None = None
        if policy is None or isinstance(policy, Policy):
            self._policy = policy or Policy()
            return
        if not isinstance(policy, str | Path):
            kind = type(policy).__name__
            raise InvalidPolicy(f"a policy is a sayso.Policy or the path of a file, not {kind}")
        self._path = Path(policy)
        self._stamp = self._look()
        self._policy = read_policy(self._path)
        self._tell()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = (self._path or Path()).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def _tell(self) -> None:
        body = {"file": str(self._path), "digest": self._policy.digest}
        self._store.transact(Note(type="policy_loaded", actor="gate", body=body))

    def current(self) -> Policy:
        """The policy as of now."""
        if self._path is None:
            return self._policy
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._policy = read_policy(self._path)
            except InvalidPolicy as error:
                log.error("%s (the policy that was read before stays in force)", error)
            else:
                self._tell()
        return self._policy


def read_policy(path: Path) -> Policy:
    """A policy file as a policy; whatever is wrong with it is said in one sentence."""
    try:
        return Policy.from_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPolicy(f"{path}: cannot be read: {error}") from error
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{path}: {error}") from None
