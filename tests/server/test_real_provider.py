"""Sign-in through a real OpenID provider (``oidc-provider`` for Node), as a browser does it."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from chat_labs import install_packages
from served import Serve, Served
from waiting import until

from sayso.server.oidc import Settings

pytestmark = pytest.mark.long

FOLDER = Path(__file__).with_name("node")
SECRET = secrets.token_hex(24)


class RealProvider:
    """The provider in a process of its own; ``groups`` are those of each person."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "groups.json"
        self._process = subprocess.Popen(
            ["node", "provider.mjs", SECRET, str(self._file)],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.issuer = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def register(self, app: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{app}\n")
        self._process.stdin.flush()
        assert self._line() == "ready"

    def set_groups(self, **groups: list[str]) -> None:
        self._file.write_text(json.dumps(groups))

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[RealProvider]:
    install_packages(FOLDER)
    provider = RealProvider(tmp_path)
    yield provider
    provider.stop()


@pytest.fixture
def served(serve: Serve, provider: RealProvider) -> Served:
    names = {"issuer": provider.issuer, "client_id": "sayso", "client_secret": SECRET}
    server = serve(oidc=Settings(**names, url="http://127.0.0.1:1", admin_groups=("root",)))
    settings = server.app.state.sayso.oidc.settings
    object.__setattr__(settings, "url", server.url)  # known only once the port is
    provider.register(server.url)
    return server


def submit(browser: httpx.Client, page: httpx.Response, **fields: str) -> httpx.Response:
    """Submit the form of a page."""
    action = re.search(r'action="([^"]*)"', page.text)
    assert action is not None, page.text
    hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    address = urljoin(str(page.url), unescape(action[1]))
    return browser.post(address, data={**dict(hidden), **fields})


def sign_in(served: Served, person: str) -> httpx.Client:
    """Return a new browser in which a person has signed in."""
    browser = served.client()
    browser.follow_redirects = True
    page = browser.get("/api/login/oidc")
    page = submit(browser, page, login=person, password="any")
    if "consent" in page.text:
        page = submit(browser, page)
    assert str(page.url) == f"{served.url}/", page.text
    return browser


def test_real_provider_signs_person_in(served: Served, provider: RealProvider) -> None:
    provider.set_groups(ana=["finance"])
    me = sign_in(served, "ana").get("/api/me").json()
    assert (me["name"], me["groups"], me["role"]) == ("ana", ["finance"], "reviewer")
    assert me["assurance"] == "session"
    person = served.store.person("ana")
    assert person is not None
    assert json.loads(person.origin) == [provider.issuer, "ana"]


def test_groups_of_real_provider_replace_earlier_ones(
    served: Served, provider: RealProvider
) -> None:
    provider.set_groups(ana=["finance"])
    first = sign_in(served, "ana")
    provider.set_groups(ana=["ops", "root"])
    assert sign_in(served, "ana").get("/api/me").json()["groups"] == ["ops", "root"]
    me = first.get("/api/me").json()
    assert (me["groups"], me["role"]) == (["ops", "root"], "admin")
    provider.set_groups(ana=[])
    sign_in(served, "ana")
    me = first.get("/api/me").json()
    assert (me["groups"], me["role"]) == ([], "reviewer")


def test_logout_at_real_provider_ends_session(served: Served, provider: RealProvider) -> None:
    provider.set_groups(ana=[], ben=[])
    ana = sign_in(served, "ana")
    ben = sign_in(served, "ben")
    left = submit(ana, ana.get(f"{provider.issuer}/session/end"), logout="yes")
    assert left.status_code == 200
    until(lambda: ana.get("/api/me").status_code == 401)
    assert ben.get("/api/me").json()["name"] == "ben"
