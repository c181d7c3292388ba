"""Recordings of the pages and of a terminal, as animated WebP pictures made of screenshots."""

from __future__ import annotations

import base64
import html
import struct
from pathlib import Path

from playwright.sync_api import Page

QUALITY = 60
#: A terminal on a page: what was typed is bold.
TERMINAL = """<style>
    body { margin: 0; background: #16181b; color: #d7dade; }
    pre { margin: 0; padding: 16px 20px; font: 14px/21px monospace; white-space: pre-wrap; }
    b { color: #4ecba3; }
</style><pre></pre>"""


class Recording:
    """Screenshots of a page, each with the time for which it is shown."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._frames: list[tuple[bytes, int]] = []
        width, height, self._scale = page.evaluate("[innerWidth, innerHeight, devicePixelRatio]")
        self._clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": self._scale}

    @property
    def seconds(self) -> float:
        return sum(milliseconds for _, milliseconds in self._frames) / 1000

    def show(self, seconds: float) -> None:
        """Add what the page shows now, for this long."""
        shot = {"format": "webp", "quality": QUALITY, "clip": self._clip}
        data = self._session.send("Page.captureScreenshot", shot)["data"]
        self._frames.append((base64.b64decode(data), round(seconds * 1000)))

    def save(self, path: Path) -> int:
        """Write the recording, which starts again at its end. Return its size."""
        width, height = (round(self._clip[side] * self._scale) for side in ("width", "height"))
        chunks = [
            _chunk(b"VP8X", struct.pack("<I", 2) + _three(width - 1) + _three(height - 1)),
            _chunk(b"ANIM", struct.pack("<IH", 0, 0)),
        ]
        for picture, milliseconds in self._frames:
            place = _three(0) * 2 + _three(width - 1) + _three(height - 1)
            frame = place + _three(milliseconds) + b"\2" + _pixels(picture)
            chunks.append(_chunk(b"ANMF", frame))
        return path.write_bytes(_chunk(b"RIFF", b"WEBP" + b"".join(chunks)))


class Terminal:
    """A terminal in which commands are typed, with what they print."""

    def __init__(self, page: Page) -> None:
        self.recording = Recording(page)
        self._page = page
        self._text = ""
        page.set_content(TERMINAL)

    def type(self, command: str) -> None:
        """Type a command, in four pieces."""
        for end in range(1, 5):
            typed = command[: len(command) * end // 4]
            self._draw(f"{self._text}$ <b>{html.escape(typed)}</b>▋", 0.15)
        self._text += f"$ <b>{html.escape(command)}</b>\n"

    def print(self, text: str, seconds: float) -> None:
        self._text += html.escape(text.rstrip()) + "\n"
        self._draw(self._text, seconds)

    def _draw(self, text: str, seconds: float) -> None:
        self._page.eval_on_selector("pre", "(box, text) => { box.innerHTML = text }", text)
        self.recording.show(seconds)


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _three(number: int) -> bytes:
    return struct.pack("<I", number)[:3]


def _pixels(picture: bytes) -> bytes:
    """Return the chunks of a still picture that hold its pixels."""
    found = b""
    at = len(b"RIFF....WEBP")
    while at < len(picture):
        name = picture[at : at + 4]
        (size,) = struct.unpack_from("<I", picture, at + 4)
        if name in (b"ALPH", b"VP8 ", b"VP8L"):
            found += _chunk(name, picture[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return found
