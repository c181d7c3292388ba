"""``sayso channels quiet``: when messages reach you."""

from __future__ import annotations

from cli_world import World


def test_quiet_hours_are_set_and_shown(world: World) -> None:
    hours = ("--from", "22:00", "--until", "07:00", "--zone", "Europe/Berlin")
    assert "at once." in world.cli("channels", "quiet")
    said = " ".join(world.cli("channels", "quiet", *hours, "--only-away").split())
    assert "not from 22:00 to 07:00 (Europe/Berlin), and only while you are away" in said
    assert world.json("channels", "quiet")["quiet_from"] == "22:00"
    world.cli("channels", "quiet", "--from", "22:00", code=1)
    world.cli("channels", "quiet", "--off", "--only-away", code=2)
    assert world.json("channels", "quiet", "--off")["only_away"] is False
    assert "The audit log is intact" in world.cli("audit", "verify")
