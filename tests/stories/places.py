"""Where the processes of a test keep their store: a SQLite file, or a schema in a PostgreSQL.

Processes pass only a folder to each other. If it has a file ``postgres``, that file names the
server, schema and key; otherwise the store is a file in the folder.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from postgres_server import shared_url, why_not

from sayso.keys import Keyring, new_key
from sayso.stores.base import Boundary, Store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore

KINDS = ("sqlite", "postgres")
_ADDRESS = "postgres"


def make(folder: Path, kind: str, url: str = "") -> Path:
    """Return a folder with a new store; on this PostgreSQL, or a shared one."""
    folder.mkdir(exist_ok=True)
    if kind == "postgres":
        if not url and why_not():
            pytest.skip(why_not())
        facts = {
            "url": url or shared_url(),
            "schema": f"fault {uuid.uuid4().hex}",
            "key": new_key(),
        }
        (folder / _ADDRESS).write_text(json.dumps(facts))
    return folder


def open_at(folder: str | Path, boundary: Boundary | None = None, clock: object = None) -> Store:
    """Open the store of a folder."""
    address = Path(folder, _ADDRESS)
    options = {} if clock is None else {"clock": clock}
    if not address.exists():
        return SqliteStore(Path(folder, "sayso.db"), boundary=boundary, **options)  # type: ignore[arg-type]
    facts = json.loads(address.read_text())
    keys = Keyring.parse(facts["key"])
    return PostgresStore(
        facts["url"], schema=facts["schema"], keys=keys, boundary=boundary, **options
    )  # type: ignore[arg-type]


def address_of(folder: Path) -> dict[str, str]:
    """Return the store's URL for a command line."""
    address = folder / _ADDRESS
    if not address.exists():
        return {"SAYSO_STORE": f"sqlite:///{folder / 'sayso.db'}"}
    facts = json.loads(address.read_text())
    mark = "&" if "?" in facts["url"] else "?"
    url = f"{facts['url']}{mark}schema={quote(facts['schema'])}"
    return {"SAYSO_STORE": url, "SAYSO_KEY": facts["key"]}


def drop(folder: Path) -> None:
    """Delete a store and its folder."""
    address = folder / _ADDRESS
    if address.exists():
        facts = json.loads(address.read_text())
        with psycopg.connect(facts["url"], autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{facts["schema"]}" CASCADE')
    shutil.rmtree(folder)
