"""Mail: a message with a link and, where a message may decide, a one-time code.

Scanners open the links of mails, so a link only opens a page, and a GET never decides. The code is
typed into that page and posted. It is computed from the store's key, so it is stored nowhere. A
reply to the mail does nothing: its sender could be anyone.
"""

from __future__ import annotations

import json
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from typing import Literal

from sayso.channels.kit.cards import Card
from sayso.channels.kit.channel import Undeliverable
from sayso.channels.kit.desk import Desk
from sayso.rows import Delivery

try:
    import aiosmtplib
except ImportError as error:
    raise ImportError('mail needs `pip install "sayso[mail]"`') from error

_TIMEOUT = 15.0
#: Replies by which a server says that it will never take this mail.
_PERMANENT = range(500, 600)

Tls = Literal["starttls", "tls", "none"]


class MailChannel:
    """Sends mail through one SMTP server. ``page`` is the address of the web app, for links."""

    name = "mail"
    per_second = 10.0
    spacing = 0.0
    updates = False
    takes_mail = True

    def __init__(
        self,
        host: str,
        port: int,
        sender: str,
        *,
        page: str = "",
        user: str = "",
        password: str = "",
        tls: Tls = "starttls",
    ) -> None:
        self._host = host
        self._port = port
        self._sender = sender
        self._domain = parseaddr(sender)[1].rpartition("@")[2] or "sayso.invalid"
        self._page = page.rstrip("/")
        self._user = user or None
        self._password = password or None
        self._tls = tls

    async def send(self, delivery: Delivery, card: Card) -> str:
        text = card.text()
        if card.code and self._page:
            text += (
                f"\n\nTo decide without signing in, open {self._page}/channels/mail/{delivery.id} "
                f"and enter the code {card.code}. Answers to this mail are not read."
            )
        message = self._message(delivery.target, card.title, text)
        # The same for each try, so that a mailbox can drop a repetition.
        message["Message-ID"] = f"<{delivery.id}@{self._domain}>"
        message["References"] = f"<{delivery.request or delivery.id}@{self._domain}>"
        await self._deliver(message)
        return json.dumps([delivery.id])

    async def update(self, delivery: Delivery, card: Card) -> None:
        """Do nothing: the page behind the link shows what became of the request."""

    async def send_code(self, target: str, code: str) -> None:
        text = f"Enter this code on your page of notifications to get approvals by mail: {code}"
        await self._deliver(self._message(target, "Your code for Sayso", text))

    async def listen(self, desk: Desk) -> None:
        """Return: decisions arrive at the page of the code."""

    async def check(self) -> str:
        async with self._client() as client:
            await client.noop()
        return f"{self._sender} at {self._host}:{self._port}"

    async def close(self) -> None: ...

    def _message(self, target: str, subject: str, text: str) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self._sender
        message["To"] = target
        message["Subject"] = subject
        message["Date"] = formatdate()
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        return message

    def _client(self) -> aiosmtplib.SMTP:
        return aiosmtplib.SMTP(
            hostname=self._host,
            port=self._port,
            username=self._user,
            password=self._password,
            use_tls=self._tls == "tls",
            start_tls=self._tls == "starttls",
            timeout=_TIMEOUT,
        )

    async def _deliver(self, message: EmailMessage) -> None:
        try:
            async with self._client() as client:
                await client.send_message(message)
        except aiosmtplib.SMTPRecipientsRefused as error:
            codes = [refused.code for refused in error.recipients]
            if all(code in _PERMANENT for code in codes):
                raise Undeliverable(f"the server refused the address: {codes}") from None
            raise
