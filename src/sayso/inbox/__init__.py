"""The door for people."""

from sayso.inbox.inbox import Inbox, Outcome, Page
from sayso.inbox.people import authenticate, create_token, os_user, revoke_token

__all__ = ["Inbox", "Outcome", "Page", "authenticate", "create_token", "os_user", "revoke_token"]
