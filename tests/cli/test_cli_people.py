"""``sayso people``: its changes and its lists."""

from __future__ import annotations

from cli_world import World


def test_person_is_added_changed_and_removed(world: World) -> None:
    world.cli("people", "add", "ana", "--group", "finance", "--mail", "ana@example.com")
    token = world.json("token", "create", "ana")
    assert world.json("people", "show", "ana")["groups"] == ["finance"]
    world.cli("people", "groups", "ana", "--add", "ops", "--remove", "finance")
    (listed,) = world.json("people", "list")
    assert (listed["name"], listed["groups"], listed["mail"]) == ("ana", ["ops"], "ana@example.com")
    removed = world.json("people", "remove", "ana")
    assert removed["ended"]["tokens"] == [token["id"]]
    assert world.json("people", "list") == []
    assert "Added ana" in world.cli("people", "add", "ana", "--restore")


def test_only_admin_tokens_change_people(world: World) -> None:
    token = world.token("ana")
    world.cli("people", "role", "ana", "admin", code=6, token=token)
    world.cli("people", "role", "ana", "admin")
    world.cli("people", "remove", "ana", code=6, token=token)  # a token never gains a role


def test_away_command_names_a_stand_in(world: World) -> None:
    world.cli("people", "add", "ana")
    world.cli("people", "add", "ben")
    away = world.json("people", "away", "ana", "--stand-in", "ben", "--until", "3d")
    assert away["stand_in"] == "ben"
    assert "ben decides" in world.cli("people", "show", "ana")
    assert world.json("people", "away", "ana", "--back")["stand_in"] is None
    world.cli("people", "away", "ana", "--stand-in", "ben", code=2)


def test_revoking_by_name_ends_all_tokens(world: World) -> None:
    world.token("ana")
    world.token("ana")
    assert len(world.json("token", "revoke", "ana")) == 2
    assert world.json("token", "list") == []
