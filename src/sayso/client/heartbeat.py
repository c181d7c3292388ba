"""Signs of life while a claimed call runs."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from sayso.client.client import Claim, Client
from sayso.errors import SaysoError

log = logging.getLogger("sayso.client")


class Heartbeat:
    """``with Heartbeat(client, claim):`` renews the claim from a thread of its own.

    A thread, because the function that runs meanwhile may block the loop, if there is one at all.
    """

    def __init__(self, client: Client, claim: Claim) -> None:
        self._client = client
        self._claim = claim
        self._over = threading.Event()

    def __enter__(self) -> None:
        name = f"sayso-claim-{self._claim.request}"
        threading.Thread(target=self._beat, name=name, daemon=True).start()

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(self._claim.lease / 3):
            try:
                ours = self._client.renew_sync(self._claim)
            except (SaysoError, RuntimeError) as error:  # a closed client is a RuntimeError
                log.warning("%s: no sign of life got through: %s", self._claim.request, error)
                continue
            if not ours:
                log.warning("%s: the claim is not ours any more", self._claim.request)
                return
