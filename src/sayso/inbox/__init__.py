"""The API for people: list, show and decide requests.

Read ``inbox`` first: ``Inbox`` and the pages it returns. ``decisions`` checks what a reviewer
decides, and builds grants. ``people`` says who the reviewer is and who may see what.
"""

from sayso.inbox.inbox import DecisionResult, Inbox, Page
from sayso.inbox.people import authenticate, create_token, os_user, revoke_token

__all__ = [
    "DecisionResult",
    "Inbox",
    "Page",
    "authenticate",
    "create_token",
    "os_user",
    "revoke_token",
]
