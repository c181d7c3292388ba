"""Signed webhooks: what happened to requests, told to other programs from an outbox."""

from assent.server.webhooks.endpoint import EVENTS, Endpoint
from assent.server.webhooks.outbox import Outbox

__all__ = ["EVENTS", "Endpoint", "Outbox"]
