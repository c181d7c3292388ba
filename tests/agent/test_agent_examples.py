"""Run the examples of the agent against an endpoint, with the real client."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import openai
import pytest
from fake_openai import FakeOpenAI

from sayso.agent.models import OpenAIChat, OpenAIResponses

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
#: Those whose model is ours and scripted, and that are nothing but an agent.
NAMES = sorted(
    path.stem
    for path in EXAMPLES.glob("*.py")
    if "ScriptedModel" in path.read_text("utf-8")
    and "sayso.adapters" not in path.read_text("utf-8")
)
SEEDS = {
    "bulk_email",
    "delete_data",
    "deployment_assistant",
    "flight_agent",
    "pizza_agent",
    "sql_agent",
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_seed_examples_all_exist() -> None:
    assert set(NAMES) >= SEEDS


@pytest.mark.parametrize("name", NAMES)
async def test_example_runs_over_the_wire(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = load(name)
    with FakeOpenAI(module.SCRIPT) as server:
        http = openai.DefaultAsyncHttpxClient(verify=False)
        url = server.base_url
        async with openai.AsyncOpenAI(base_url=url, api_key="test", http_client=http) as client:
            chat = name in ("bulk_email", "flight_agent", "pizza_agent")
            model = OpenAIChat("m", client=client) if chat else OpenAIResponses("m", client=client)
            await module.main(model)
        assert (server.left, server.errors) == (0, [])
    assert capsys.readouterr().out.strip()
    if name == "sql_agent":
        module.database.close()


@pytest.mark.long
def test_example_accepts_a_model_option(tmp_path: Path) -> None:
    module = load("deployment_assistant")
    with FakeOpenAI(module.SCRIPT) as server:
        env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test"}
        command = [sys.executable, str(EXAMPLES / "deployment_assistant.py")]
        done = subprocess.run(
            [*command, "--model", "openai:gpt-4o"],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "Version 2.5.0 is everywhere."
