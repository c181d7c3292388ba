"""An SMTP server on a socket, which keeps the mails that arrive."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller

from sayso.channels.mail import MailChannel


class Mailbox:
    """Keeps the mails that arrive; refuses some addresses."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.port = 0

    async def handle_RCPT(self, _: Any, __: Any, envelope: Any, address: str, ___: Any) -> str:
        if address.startswith("gone"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 ok"

    def text(self, number: int = -1) -> str:
        return str(self.mails[number].get_content())


@contextmanager
def running_mailbox(page: str) -> Iterator[tuple[Mailbox, MailChannel]]:
    """Run an SMTP server, with the channel that sends through it."""
    box = Mailbox()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    box.port = port
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    yield box, MailChannel("127.0.0.1", port, "sayso@example.com", page=page, tls="none")
    server.stop()
