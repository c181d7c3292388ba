"""LangChain's own tests of its middleware, with our module in the place of its module.

They come with LangChain's source distribution, of the very version that is installed, and are run
in a folder of their own, with our module put where Python looks for its module.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

THEIRS = "langchain.agents.middleware.human_in_the_loop"
OURS = "sayso.adapters.langchain"
FILE = "unit_tests/agents/middleware/implementations/test_human_in_the_loop.py"
IN_ITS_PLACE = f"""
import sys
import {OURS} as ours
sys.modules["{THEIRS}"] = ours
"""
LEAST = 70


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the installed version; they need a package index."""
    folder = tmp_path_factory.mktemp("langchain")
    wanted = f"langchain=={version('langchain')}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", wanted]
    pip += ["--no-binary", "langchain", "--dest", str(folder)]
    try:
        ran = subprocess.run(pip, capture_output=True, text=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the source of LangChain could not be had within three minutes")
    if ran.returncode:
        pytest.skip(f"the source of LangChain cannot be had here: {ran.stderr[-300:]}")
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    (tests,) = folder.glob("langchain-*/tests")
    return tests


def test_langchains_own_tests_pass(sources: Path, tmp_path: Path) -> None:
    inner = tmp_path / "tests" / "unit_tests" / "agents"
    inner.mkdir(parents=True)
    for package in (inner, inner.parent, inner.parent.parent):
        (package / "__init__.py").touch()
    model = "unit_tests/agents/model.py"
    (inner / "model.py").write_text((sources / model).read_text())
    text = (sources / FILE).read_text()
    assert text.count(THEIRS) > 20
    (tmp_path / "conftest.py").write_text(IN_ITS_PLACE)
    (inner / "test_theirs.py").write_text(text)
    settings = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command += ["--rootdir", str(tmp_path), *settings, "tests"]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    passed = int(ran.stdout.rsplit(" passed", 1)[0].rsplit(maxsplit=1)[-1])
    assert passed >= LEAST
    assert "failed" not in ran.stdout
