"""Addresses of webhooks: no redirects, no private networks, only the checked address."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hook_world import SECRET, Receiver, ask, count, notes
from remote_world import Server
from waiting import until

import sayso
from sayso.channels.kit.network import Forbidden, is_public
from sayso.server.webhooks import Endpoint, Message, NotDelivered, WebhookSender

Serve = Callable[..., Server]
Receivers = Callable[..., Receiver]

MESSAGE = Message("evt_1", "request.opened", "req_1", 0, '{"type":"request.opened"}')


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "192.0.0.8",
        "192.0.0.170",
        "192.0.0.255",
        "192.88.99.1",
        "198.18.0.1",
        "64:ff9b:1::1",
        "3fff::1",
        "5f00::1",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:db8::1",
        "fec0::1",
        "feff:ffff::1",
        "::7f00:1",
        "::10.0.0.1",
        "::ffff:0:7f00:1",
        "100::1",
        "400::1",
        "4000::1",
        "c000::1",
        "64:ff9b::a00:1",
        "2002:a00:1::1",
        "2002:c0a8:101::1",
        "2001:0:a00:1::1",
        "2001:10::1",
        "2001:20::1",
        "2620:4f:8000::1",
        "ff0e::1",
    ],
)
def test_private_address_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_address_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


async def refused(url: str, **options: Any) -> str:
    sender = WebhookSender()
    try:
        with pytest.raises((Forbidden, NotDelivered)) as error:
            await sender.deliver(Endpoint(url, SECRET, **options), MESSAGE)
    finally:
        await sender.close()
    return str(error.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "2130706433", "0x7f.1", "0"])
async def test_name_of_private_address_is_refused(receiver: Receiver, host: str) -> None:
    said = await refused(f"https://{host}:{receiver.port}/hook")
    assert "a private address" in said
    assert receiver.connections == 0


async def test_unresolvable_name_is_refused() -> None:
    assert "cannot be resolved" in await refused("https://nothing.invalid/hook")


def test_refused_address_is_recorded(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    url = f"https://localhost:{receiver.port}/hook"
    server = serve(Endpoint(url, SECRET, pause=0.01, keep_trying=0))
    request = ask(gate, "r")
    until(lambda: count(server, "dead") == 1)
    (note,) = notes(inbox)
    assert (note["request"], note["endpoint"]) == (request.id, url)
    assert "a private address" in note["reason"]
    assert receiver.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(
    serve: Serve, receivers: Receivers, gate: sayso.Gate, status: int
) -> None:
    receiver, elsewhere = receivers(), receivers()
    receiver.statuses = [status]
    receiver.location = elsewhere.url
    serve(receiver.endpoint())
    ask(gate, "r")
    until(lambda: len(receiver.got) == 2)  # it is no delivery, so it is tried again
    assert elsewhere.connections == 0


async def test_redirect_to_link_local_address_fails(receiver: Receiver) -> None:
    receiver.statuses = [302]
    receiver.location = "http://169.254.169.254/latest/meta-data/"
    said = await refused(receiver.url, allow_private=True)
    assert "redirects are not followed" in said
    assert len(receiver.got) == 1


async def test_plain_http_stays_in_private_network(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "hooks.test", "192.0.2.1", "8.8.8.8")
    said = await refused("http://hooks.test/hook", allow_private=True, timeout=5)
    assert "use https" in said


def names(monkeypatch: pytest.MonkeyPatch, host: str, *answers: str) -> list[str]:
    """A resolver that knows this name too; gives what it was asked for."""
    real = socket.getaddrinfo
    asked: list[str] = []

    def resolve(name: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        given = name.decode() if isinstance(name, bytes) else name
        if given != host:
            return real(name, port, *args, **kwargs)
        asked.append(given)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


async def test_one_bad_address_among_good_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "hooks.test", "8.8.8.8", "169.254.169.254")
    assert "169.254.169.254" in await refused("https://hooks.test/hook")


# -- TLS: the name is still the receiver's, although the address is what is called


def made_by(folder: Path, host: str) -> ssl.SSLContext:
    """A certificate for this host, by an authority whose own is in ``folder/ca.pem``."""
    now = datetime.datetime.now(datetime.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.pem").write_bytes(pem)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "server.pem").write_bytes(private + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


async def test_checked_address_keeps_receiver_name(
    tmp_path: Path, receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receivers(tls=made_by(tmp_path, "hooks.test"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    asked = names(monkeypatch, "hooks.test", "127.0.0.1")
    sender = WebhookSender()
    endpoint = Endpoint(f"https://hooks.test:{receiver.port}/hook?a=b", SECRET, allow_private=True)
    await sender.deliver(endpoint, MESSAGE)
    await sender.close()
    (got,) = receiver.got
    assert got.headers["host"] == f"hooks.test:{receiver.port}"
    assert got.path == "/hook?a=b"
    assert got.body == {"type": "request.opened"}
    assert asked == ["hooks.test"]  # once: nobody can answer otherwise the second time


async def test_certificate_for_another_name_is_refused(
    tmp_path: Path, receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receivers(tls=made_by(tmp_path, "other.test"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    names(monkeypatch, "hooks.test", "127.0.0.1")
    said = await refused(f"https://hooks.test:{receiver.port}/hook", allow_private=True)
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert receiver.got == []
