"""Windows of the browser, as the tests of the pages ask for them."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

Open = Callable[..., Page]
