"""The parser understands what a shell understands, or says that it does not."""

from __future__ import annotations

import os
import random
import shutil
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shell_fuzz import clear_commands, differences
from shell_project import scratch_folder

from sayso.hooks.commands import command_kinds
from sayso.hooks.shell import UnclearCommand, parse

SHELLS = [shell for shell in ("bash", "zsh") if shutil.which(shell)]


def words(command: str) -> list[list[str]]:
    return [[word.text for word in simple.words] for simple in parse(command)]


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_run_derived_words(shell: str) -> None:
    commands = clear_commands(150, random.Random())
    with scratch_folder() as folder:
        found = differences(commands, shell, folder)
    print(f"{shell}: {len(found)} differences in {len(commands)} clear commands")
    assert not found, found[0]


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shell", SHELLS)
def test_shells_run_derived_words_for_long(shell: str) -> None:
    """``SAYSO_FUZZ_COMMANDS`` is how many clear commands to try: 200,000 take hours."""
    left = int(os.environ.get("SAYSO_FUZZ_COMMANDS", "200000"))
    choose = random.Random()
    while left > 0:
        commands = clear_commands(min(left, 500), choose)
        with scratch_folder() as folder:
            found = differences(commands, shell, folder)
        assert not found, found[0]
        left -= len(commands)
