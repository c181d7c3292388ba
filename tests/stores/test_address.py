"""The address of a store has one meaning for the library and every command."""

from __future__ import annotations

from pathlib import Path

import pytest

import sayso
from sayso.errors import NotFound, StoreError
from sayso.stores import open_store
from sayso.stores.address import address_of


@pytest.mark.parametrize(
    "form",
    [
        "sqlite:///a.db",
        "sqlite:///./a.db",
        "sqlite:////{here}/a.db",
        "a.db",
        "./a.db",
        "{here}/a.db",
        "sqlite:///~/a.db",
        "~/a.db",
    ],
)
def test_every_address_form_names_one_file(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    text = form.replace("/{here}", str(tmp_path)).replace("{here}", str(tmp_path))
    address = address_of(text)
    assert address.path == tmp_path / "a.db"
    assert address.url == f"sqlite:///{tmp_path}/a.db"
    assert address_of(address.url) == address
    assert not list(tmp_path.iterdir())


def test_path_names_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert address_of(Path("store")).path == tmp_path / "store"
    assert address_of(Path("~/store?")).path == tmp_path / "store?"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_both_schemes_name_postgresql(scheme: str) -> None:
    address = address_of(f"{scheme}://ana:secret@host/db?schema=x")
    assert (address.kind, address.path) == ("postgresql", None)
    assert address.url == f"{scheme}://ana:secret@host/db?schema=x"


def test_memory_may_have_a_name() -> None:
    assert address_of("memory://").name == ""
    assert address_of("memory://shared").name == "shared"


WRONG = {
    "": "is empty: use sqlite:///",
    "  ": "is empty",
    " a.db": "spaces around it",
    "a.db\n": "spaces around it",
    "store": "a path alone has to end in .db",
    "/var/lib/sayso": "a path alone has to end in .db",
    ":memory:": "memory://",
    "sqlite:///:memory:": "memory://",
    "memory:": "use sqlite:///",
    "memory:/x": "use sqlite:///",
    "sqlite:": "names no file",
    "sqlite://": "names no file",
    "sqlite:///": "names no file",
    "sqlite:a.db": "write sqlite:///sayso.db",
    "sqlite:/a.db": "write sqlite:///sayso.db",
    "sqlite://a.db": "write sqlite:///sayso.db",
    "sqlite:///a.db?mode=ro": "leave out what follows the ?",
    "sqlite+aiosqlite:///a.db": "use sqlite:///",
    "SQLITE:///a.db": "use sqlite:///",
    "file:a.db": "write sqlite:///",
    "file:///a.db?mode=ro": "write sqlite:///",
    r"C:\data\a.db": "Windows path",
    "C:/data/a.db": "Windows path",
    r"data\a.db": "Windows path",
    "sqlite:///C:/data/a.db": "Windows path",
    r"sqlite:///data\a.db": "Windows path",
    "postgres:host/db": "use sqlite:///",
    "postgresql+psycopg://ana:secret@host/db": "use sqlite:///",
    "mysql://ana:secret@host/db": "use sqlite:///",
    "http://localhost:8321": "sayso.Client",
    "https://sayso.example": "sayso.Client",
    "a\0.db": "null character",
    "sqlite:///a\0.db": "null character",
    "~nobody-of-this-name/a.db": "home folder",
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("use", [address_of, open_store, sayso.Gate, sayso.Inbox])
def test_wrong_address_error_gives_the_form(
    use: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        use(name)
    assert WRONG[name] in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_folder_is_no_store(form: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"names a folder: write .*/sayso.db"):
        address_of(form.format(tmp_path))


@pytest.mark.parametrize("value", [None, 7, b"a.db", ["a.db"]])
def test_other_value_is_no_store(value: object) -> None:
    with pytest.raises(StoreError, match="a store is a URL or a store, not"):
        open_store(value)  # type: ignore[arg-type]


def test_missing_store_is_not_created(tmp_path: Path) -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(NotFound, match="there is no store at"):
            open_store(tmp_path / "a.db", **options)
        with pytest.raises(StoreError, match="memory://"):
            open_store("memory://", **options)
    assert not list(tmp_path.iterdir())
