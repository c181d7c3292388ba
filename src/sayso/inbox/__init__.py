"""The API for people: list, show and decide requests.

Read ``inbox`` first: ``Inbox`` and the pages it returns. ``decisions`` checks what a reviewer
decides, and builds grants. ``people`` says who the reviewer is and who may see what, and
``directory`` adds people, changes their rights and takes them away.
"""

from sayso.inbox.directory import (
    TakenAway,
    add_person,
    change_person,
    create_token,
    end_sessions,
    remove_person,
    revoke_token,
    set_stand_in,
)
from sayso.inbox.inbox import DecisionResult, Inbox, Page
from sayso.inbox.people import authenticate, os_user

__all__ = [
    "DecisionResult",
    "Inbox",
    "Page",
    "TakenAway",
    "add_person",
    "authenticate",
    "change_person",
    "create_token",
    "end_sessions",
    "os_user",
    "remove_person",
    "revoke_token",
    "set_stand_in",
]
