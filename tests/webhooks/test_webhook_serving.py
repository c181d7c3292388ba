"""`sayso serve --webhook`: with a secret from the environment or a file, or not at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hook_world import SECRET, Receiver, ask
from sayso_process import Process, start
from waiting import until

import sayso


@contextmanager
def serving(url: str, *options: str, **environment: str) -> Iterator[Process]:
    command = ("serve", "--port", "0", "--store", url, *options)
    process = start(*command, cwd=Path.cwd(), env={**os.environ, **environment})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_server_with_webhooks_stops_on_signal(
    url: str, receiver: Receiver, gate: sayso.Gate, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    options = ["--webhook", receiver.url, "--webhook-private", "--page-url", "https://a.example"]
    with serving(url, *options, "--webhook-secret-file", str(secret)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Sayso is at http://127.0.0.1:")
        request = ask(gate, "r")
        got = until(lambda: receiver.got)
        assert got[0].body["data"]["link"] == f"https://a.example/inbox/{request.id}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("secret", "address", "said"),
    [
        ("", "https://hooks.example/", "SAYSO_WEBHOOK_SECRET"),
        (SECRET, "http://hooks.example/", "https://"),
    ],
)
def test_invalid_webhook_options_are_refused(
    url: str, secret: str, address: str, said: str
) -> None:
    with serving(url, "--webhook", address, SAYSO_WEBHOOK_SECRET=secret) as process:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2
        assert said in errors
        assert not secret or secret not in errors
