"""What a channel has to provide, and the errors by which it says what became of a message."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from sayso.channels.kit.cards import Card
from sayso.errors import SaysoError
from sayso.inbox.push import Subscription
from sayso.rows import Delivery


class Channel(Protocol):
    """A way to people. Each of its methods makes one attempt; the kit repeats and spaces them."""

    #: In terms (``notify = ["slack:#ops"]``), in rows and in the record.
    name: str
    #: How many messages a second the platform takes, and how many seconds apart to one target.
    per_second: float
    spacing: float
    #: Whether a message can be changed after it was sent.
    updates: bool
    #: Whether a person's mail address is theirs here without a link; it then gets no buttons.
    takes_mail: bool

    async def send(self, delivery: Delivery, card: Card) -> str:
        """Send a message; return the platform's ids of it as JSON.

        Raises ``TryLater`` or ``Undeliverable``; any other error is tried again.
        """

    async def update(self, delivery: Delivery, card: Card) -> None:
        """Change a message that was sent. Raises as ``send``."""

    async def send_code(self, target: str, code: str) -> None:
        """Send a code that links an account, where the platform has no bot to send it to."""

    async def check(self) -> str:
        """Return who the bot is. Raises if the platform does not know it."""

    async def close(self) -> None: ...


@runtime_checkable
class TakesSubscriptions(Protocol):
    """A channel to browsers, which subscribe to it."""

    #: What a browser needs to subscribe.
    public_key: str

    async def accept(self, subscription: Subscription) -> None:
        """Raise ``InvalidCall`` unless messages can be sent to a subscription."""


@runtime_checkable
class OpensByLink(Protocol):
    """A platform on which a link opens the bot."""

    async def bot_link(self, code: str) -> str:
        """Return the URL that opens the bot and offers to send it a code."""


class Received(NamedTuple):
    """The answer to what a platform posted."""

    status: int
    body: str = ""
    type: str = "text/plain"


class TryLater(SaysoError):
    """The platform takes no message now. Try again after ``wait`` seconds.

    ``alone`` says that this is about one target: messages to others need not wait.
    """

    def __init__(self, message: str, wait: float = 0.0, *, alone: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.alone = alone


class Undeliverable(SaysoError):
    """The platform will never deliver this message: the person blocked the bot, or left."""
