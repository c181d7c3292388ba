"""OpenAI's function calling in a loop of your own, without any agent of ours.

A guarded function waits for a person, and `gate.once` keeps what the model said: the same loop,
entered again in any process, asks the model nothing twice and repeats no effect. Here a script
answers in place of the server; with `OpenAI()` you talk to the real one.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

import httpx2
from openai import OpenAI

import sayso

QUESTION = {"question": "Which sign-in?", "options": ["password", "passkey"]}
LOGIN = {"provider": "passkey", "minutes": 600}
CODES = {"provider": "mail codes", "minutes": 30}
SCRIPT: list[Any] = [
    [("ask_user_question", QUESTION)],
    [("add_login", LOGIN), ("add_login", CODES)],  # two calls in one reply
    "Passkeys it is.",
]


def tool(name: str, description: str, **arguments: Any) -> Any:
    schema = {"type": "object", "properties": arguments, "required": list(arguments)}
    about = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": about}


TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 5}
TOOLS = [
    tool("ask_user_question", "Ask the user to choose.", question=TEXT, options=TEXTS),
    tool("add_login", "Add a way to sign in.", provider=TEXT, minutes={"type": "integer"}),
]


def talk(client: OpenAI, gate: sayso.Gate, run: Any, words: str) -> str:
    """The loop: ask the model, make its calls, tell it what came of them."""

    def ask_user_question(question: str, options: list[str]) -> Any:
        return gate.ask_sync(sayso.Question(question, options))

    @gate.guard
    def add_login(provider: str, minutes: int) -> str:
        print(f"  added: {provider}, for {minutes} minutes")
        return f"{provider} added, for {minutes} minutes"

    def reply() -> Any:
        print("  the model is asked")
        said = client.chat.completions.create(model="gpt-4o", messages=messages, tools=TOOLS)
        return said.choices[0].message.model_dump(exclude_none=True)

    functions: dict[str, Any] = {"ask_user_question": ask_user_question, "add_login": add_login}
    messages: list[Any] = [{"role": "user", "content": words}]
    while True:
        said = gate.once_sync(f"reply {len(messages)}", reply)
        messages.append(said)
        if not said.get("tool_calls"):
            return str(said["content"])
        with run.one_pause() as each:  # ask about all calls of the reply, then pause
            for made in said["tool_calls"]:
                with each:
                    result = call(functions, made["function"])
                    answer = {"role": "tool", "tool_call_id": made["id"], "content": result}
                    messages.append(answer)


def call(functions: dict[str, Any], made: dict[str, str]) -> str:
    try:
        result = functions[made["name"]](**json.loads(made["arguments"]))
    except sayso.Refused as refusal:  # the model should know
        result = str(refusal)
    return json.dumps(result)


def main(client: OpenAI, store: str) -> None:
    gate, inbox = sayso.Gate(store, agent="helper", wait=0), sayso.Inbox(store)
    while True:  # each time round could be another process, on another day
        try:
            with gate.run("sign-in") as run:
                print("the answer:", talk(client, gate, run, "Help me set up sign-in for my app."))
            break
        except sayso.Paused as paused:
            requests = paused.requests
        for request in requests:
            if request.question is not None:
                print("asked:", request.question.text)
                decision: sayso.Decision = request.respond("passkey")
            else:
                print(f"waits: {request.tool} {dict(request.args)}")
                decision = request.edit({"minutes": 60})
            inbox.decide_sync(request.id, decision, by="ana")
    gate.close()
    inbox.close()


def scripted(request: httpx2.Request) -> httpx2.Response:
    """Answer with the next step of the script."""
    sent = json.loads(request.content)["messages"]
    step = SCRIPT[sum(message["role"] == "assistant" for message in sent)]
    message: dict[str, Any] = {"role": "assistant", "content": step}
    if not isinstance(step, str):
        functions = [{"name": name, "arguments": json.dumps(args)} for name, args in step]
        calls = [
            {"id": f"call_{len(sent)}_{index}", "type": "function", "function": function}
            for index, function in enumerate(functions)
        ]
        message |= {"content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return httpx2.Response(200, json={"id": "1", "object": "chat.completion", "choices": [choice]})


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        httpx2.Client(transport=httpx2.MockTransport(scripted)) as http,
        OpenAI(api_key="none needed", http_client=http) as client,
    ):
        main(client, f"sqlite:///{folder}/sayso.db")
