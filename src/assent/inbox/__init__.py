"""The door for people."""

from assent.inbox.inbox import Inbox, Outcome, Page
from assent.inbox.people import authenticate, create_token, revoke_token

__all__ = ["Inbox", "Outcome", "Page", "authenticate", "create_token", "revoke_token"]
