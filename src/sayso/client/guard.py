"""Guarding a plain function whose calls are decided on a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sayso.client.life import RemoteLife
from sayso.gate.guard import Guard

if TYPE_CHECKING:
    from sayso.client.gate import RemoteGate


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteGuard(Guard):
    """A guarded function as at a gate; only where its calls live is different."""

    remote: RemoteGate
    options: Mapping[str, Any]

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = self.remote.scope()
        plan = self._plan(scope, self.signature.bind(args, kwargs))
        return await RemoteLife(self.remote, scope, plan, self.options).outcome()
