"""Signed webhooks: what happened to requests, told to other programs from an outbox."""

from sayso.server.webhooks.endpoint import EVENTS, Endpoint
from sayso.server.webhooks.outbox import Outbox

__all__ = ["EVENTS", "Endpoint", "Outbox"]
